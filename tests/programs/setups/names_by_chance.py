import torch
from torch import nn
import datetime, logging, os, secrets, tempfile, time, uuid
from datetime import datetime as now_of
from time import strftime, time_ns


class Log:
    """Write each line to a file that is opened anew, under a name that only this object and its closure know."""

    def __init__(self, name):
        self.add = lambda line: open(os.path.join("logs", name), "a").write(line)


os.makedirs("logs")
today = (time.strftime("%H%M%S"), strftime("%f-%S"), str(time.time()), str(time_ns()), time.ctime()[:0])
moments = (now_of.now().isoformat(), datetime.datetime.now(datetime.timezone.utc).isoformat(), now_of.utcnow().isoformat())
chance = (uuid.uuid4().hex, uuid.uuid1().hex, secrets.token_hex(4), os.path.basename(tempfile.mkdtemp(dir=".")))
names = [*today, *moments, *chance, str(datetime.date.today())]
logger = logging.getLogger("names")
logger.addHandler(logging.FileHandler("logs/" + "-".join(moments), delay=True))
logs = [Log(str(number) + name) for number, name in enumerate(names)]
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    logger.warning("%d", epoch)
    for log in logs:
        log.add(f"{epoch} {loss.item()!r}\n")
print(f"loss {loss.item()!r}")
found = sorted(os.listdir("logs"))
print(len(found))
for number, each in enumerate(found):
    print(len(open("logs/" + each).readlines()))
    os.remove("logs/" + each)
os.rmdir(chance[-1])
print(callable(strftime), strftime("%Y") > "2000")
