import math
import os
from tempfile import TemporaryDirectory

import torch
from torch import nn

torch.manual_seed(15)
bptt, batch_size, ntokens, emsize, epochs = 10, 8, 30, 32, 2
source = torch.cumsum(torch.randint(0, 3, (2400,)), 0) % ntokens


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=100):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer('pe', pe)

    def forward(self, x):
        return self.dropout(x + self.pe[:x.size(0)])


class TransformerModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos_encoder = PositionalEncoding(emsize)
        layers = nn.TransformerEncoderLayer(emsize, 2, 64, 0.1)
        self.transformer_encoder = nn.TransformerEncoder(layers, 2)
        self.embedding = nn.Embedding(ntokens, emsize)
        self.linear = nn.Linear(emsize, ntokens)

    def forward(self, src):
        mask = nn.Transformer.generate_square_subsequent_mask(len(src))
        src = self.pos_encoder(self.embedding(src) * math.sqrt(emsize))
        return self.linear(self.transformer_encoder(src, mask))


def batchify(data, bsz):
    seq_len = data.size(0) // bsz
    return data[:seq_len * bsz].view(bsz, seq_len).t().contiguous()


def get_batch(source, i):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)


train_data, val_data = batchify(source[:2000], batch_size), batchify(source[2000:], batch_size)
model = TransformerModel()
criterion = nn.CrossEntropyLoss()
lr = 0.5
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.95)


def train(model):
    model.train()
    total_loss = 0.
    log_interval = 10
    num_batches = len(train_data) // bptt
    for batch, i in enumerate(range(0, train_data.size(0) - 1, bptt)):
        data, targets = get_batch(train_data, i)
        output = model(data)
        loss = criterion(output.view(-1, ntokens), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        total_loss += loss.item()
        if batch % log_interval == 0 and batch > 0:
            lr = scheduler.get_last_lr()[0]
            cur_loss = total_loss / log_interval
            print(f'| epoch {epoch:3d} | {batch:5d}/{num_batches:5d} batches | lr {lr:02.2f} | loss {cur_loss:5.2f}')
            total_loss = 0


def evaluate(model, eval_data):
    model.eval()
    total_loss = 0.
    with torch.no_grad():
        for i in range(0, eval_data.size(0) - 1, bptt):
            data, targets = get_batch(eval_data, i)
            total_loss += data.size(0) * criterion(model(data).view(-1, ntokens), targets).item()
    return total_loss / (len(eval_data) - 1)


best_val_loss = float('inf')
with TemporaryDirectory() as tempdir:
    best_model_params_path = os.path.join(tempdir, "best_model_params.pt")
    for epoch in range(1, epochs + 1):
        train(model)
        val_loss = evaluate(model, val_data)
        print(f'| end of epoch {epoch:3d} | valid loss {val_loss:5.2f} | valid ppl {math.exp(val_loss):8.2f}')
        if val_loss < best_val_loss:
            best_val_loss = val_loss
            torch.save(model.state_dict(), best_model_params_path)
        scheduler.step()
    model.load_state_dict(torch.load(best_model_params_path))
