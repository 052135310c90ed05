import contextlib
import signal

import torch
from torch import nn

# Context managers and try/finally around the loops, an alarm handler, a nested function with nonlocal names.
torch.manual_seed(17)
signal.signal(signal.SIGUSR1, lambda *_: print('usr1'))


@contextlib.contextmanager
def section(name, log):
    log.append(f'enter {name}')
    try:
        yield len(log)
    finally:
        log.append(f'leave {name}')


def main():
    log, best = [], None

    def better(loss):
        nonlocal best
        if best is None or loss < best:
            best = loss
            return True
        return False

    with contextlib.ExitStack() as stack:
        depth = stack.enter_context(section('run', log))
        model = nn.GRU(3, 8, batch_first=True)
        optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
        try:
            for epoch in range(3):
                with section(f'epoch {epoch}', log), torch.enable_grad():
                    for step in range(20):
                        x = torch.randn(4, 5, 3)
                        loss = model(x)[0].sub(x.mean()).pow(2).mean()
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                        if better(loss.item()):
                            log.append(step)
                print('epoch', epoch, 'best', best, 'log', len(log), 'depth', depth)
        finally:
            log.append('done')
    print(log[-3:])
    return best


if __name__ == '__main__':
    main()
