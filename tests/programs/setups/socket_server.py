import torch
from torch import nn
import socket, threading
heard = []
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
def serve():
    while True:
        try:
            heard.append(server.accept()[0].recv(9))
        except OSError:
            return
threading.Thread(target=serve, daemon=True).start()
port = server.getsockname()[1]
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    pass
print(f"loss {loss.item()!r}")
print(port == server.getsockname()[1])
