import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(21)
num_epochs = 4
batch_size = 50
learning_rate = 1e-3
img = torch.tensor(load_digits().data[:1500], dtype=torch.float32) / 8 - 1
dataloader = DataLoader(img, batch_size=batch_size, shuffle=True)


class autoencoder(nn.Module):
    def __init__(self):
        super(autoencoder, self).__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(True), nn.Linear(32, 8), nn.ReLU(True), nn.Linear(8, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU(True), nn.Linear(8, 32), nn.ReLU(True),
                                     nn.Linear(32, 64), nn.Tanh())

    def forward(self, x):
        x = self.encoder(x)
        x = self.decoder(x)
        return x


model = autoencoder()
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, weight_decay=1e-5)
outputs = []
for epoch in range(num_epochs):
    for data in dataloader:
        # ===================forward=====================
        recon = model(data + 0.1 * torch.randn_like(data))
        loss = criterion(recon, data)
        # ===================backward====================
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # ===================log========================
    print('epoch [{}/{}], loss:{:.4f}'.format(epoch + 1, num_epochs, loss.item()))
    outputs.append((epoch, data, recon))
    if epoch % 2 == 0:
        torch.save(recon[:16].detach(), 'image_{}.pt'.format(epoch))

torch.save(model.state_dict(), './sim_autoencoder.pth')
