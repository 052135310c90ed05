import numpy as np
import torch
import torch.nn as nn
from sklearn.preprocessing import MinMaxScaler
from torch.autograd import Variable

np.random.seed(0)
torch.manual_seed(0)

t = np.arange(0, 260)
series = (np.sin(t / 9) + 0.3 * np.sin(t / 3) + 0.05 * np.random.randn(len(t))).reshape(-1, 1)
sc = MinMaxScaler()
training_data = sc.fit_transform(series)


def sliding_windows(data, seq_length):
    x = []
    y = []
    for i in range(len(data) - seq_length - 1):
        x.append(data[i:(i + seq_length)])
        y.append(data[i + seq_length])
    return np.array(x), np.array(y)


seq_length = 8
x, y = sliding_windows(training_data, seq_length)
train_size = int(len(y) * 0.67)
trainX = Variable(torch.Tensor(np.array(x[0:train_size])))
trainY = Variable(torch.Tensor(np.array(y[0:train_size])))
testX = Variable(torch.Tensor(np.array(x[train_size:])))
testY = Variable(torch.Tensor(np.array(y[train_size:])))


class LSTM(nn.Module):
    def __init__(self, num_classes, input_size, hidden_size, num_layers):
        super(LSTM, self).__init__()
        self.num_layers = num_layers
        self.hidden_size = hidden_size
        self.lstm = nn.LSTM(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers, batch_first=True)
        self.fc = nn.Linear(hidden_size, num_classes)

    def forward(self, x):
        h_0 = Variable(torch.zeros(self.num_layers, x.size(0), self.hidden_size))
        c_0 = Variable(torch.zeros(self.num_layers, x.size(0), self.hidden_size))
        ula, (h_out, _) = self.lstm(x, (h_0, c_0))
        return self.fc(h_out.view(-1, self.hidden_size))


num_epochs = 120
learning_rate = 0.01
lstm = LSTM(1, 1, 8, 1)
criterion = torch.nn.MSELoss()
optimizer = torch.optim.Adam(lstm.parameters(), lr=learning_rate)

for epoch in range(num_epochs):
    outputs = lstm(trainX)
    optimizer.zero_grad()
    loss = criterion(outputs, trainY)
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        print("Epoch: %d, loss: %1.5f" % (epoch, loss.item()))

lstm.eval()
predict = sc.inverse_transform(lstm(testX).data.numpy())
actual = sc.inverse_transform(testY.data.numpy())
print('RMSE', float(np.sqrt(((predict - actual) ** 2).mean())))
