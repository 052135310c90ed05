import logging
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, Dataset, random_split
from tqdm import tqdm

dir_checkpoint = Path('./checkpoints/')


class Blobs(Dataset):
    def __init__(self, n):
        yy, xx = torch.meshgrid(torch.arange(16), torch.arange(16), indexing='ij')
        c = torch.randint(4, 12, (n, 2))
        self.masks = (((yy - c[:, :1, None]) ** 2 + (xx - c[:, 1:, None]) ** 2) < 12).long()
        self.images = self.masks.unsqueeze(1).float() + 0.4 * torch.randn(n, 1, 16, 16)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {'image': self.images[i], 'mask': self.masks[i]}


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.down = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.outc = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.up(self.down(x1))
        return self.outc(torch.cat([x1, x2], 1))


def dice_loss(pred, target):
    inter = 2 * (pred * target).sum()
    return 1 - (inter + 1e-6) / (pred.sum() + target.sum() + 1e-6)


@torch.inference_mode()
def evaluate(net, dataloader):
    net.eval()
    dice = 0
    for batch in tqdm(dataloader, total=len(dataloader), desc='Validation round', unit='batch', leave=False):
        pred = net(batch['image']).argmax(1)
        dice += 1 - dice_loss(pred.float(), batch['mask'].float())
    net.train()
    return dice / max(len(dataloader), 1)


def train_model(model, epochs=2, batch_size=8, learning_rate=1e-3, val_percent=0.2, gradient_clipping=1.0):
    dataset = Blobs(200)
    n_val = int(len(dataset) * val_percent)
    n_train = len(dataset) - n_val
    train_set, val_set = random_split(dataset, [n_train, n_val], generator=torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, shuffle=True, batch_size=batch_size, num_workers=0)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, batch_size=batch_size)
    logging.info(f'Starting training: Epochs: {epochs} Batch size: {batch_size}')
    optimizer = optim.RMSprop(model.parameters(), lr=learning_rate, weight_decay=1e-8, momentum=0.9, foreach=True)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=5)
    criterion = nn.CrossEntropyLoss()
    global_step = 0
    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0
        with tqdm(total=n_train, desc=f'Epoch {epoch}/{epochs}', unit='img') as pbar:
            for batch in train_loader:
                images, true_masks = batch['image'], batch['mask']
                masks_pred = model(images)
                loss = criterion(masks_pred, true_masks)
                loss += dice_loss(F.softmax(masks_pred, dim=1)[:, 1], true_masks.float())
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
                optimizer.step()
                pbar.update(images.shape[0])
                global_step += 1
                epoch_loss += loss.item()
                pbar.set_postfix(**{'loss (batch)': loss.item()})
                division_step = (n_train // (2 * batch_size))
                if division_step > 0 and global_step % division_step == 0:
                    val_score = evaluate(model, val_loader)
                    scheduler.step(val_score)
                    logging.info('Validation Dice score: {}'.format(val_score))
                    print(f'step {global_step} dice {val_score.item():.4f}')
        Path(dir_checkpoint).mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), str(dir_checkpoint / 'checkpoint_epoch{}.pth'.format(epoch)))
        logging.info(f'Checkpoint {epoch} saved!')


if __name__ == '__main__':
    logging.basicConfig(level=logging.INFO, format='%(levelname)s: %(message)s')
    torch.manual_seed(0)
    model = UNet()
    train_model(model)
