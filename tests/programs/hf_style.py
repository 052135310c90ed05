"""Fine-tune a classifier in the manner of the transformers examples, with the loop written out."""
import math
from dataclasses import dataclass
from typing import Optional

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm


@dataclass
class SequenceClassifierOutput:
    loss: Optional[torch.Tensor] = None
    logits: Optional[torch.Tensor] = None


class TinyForSequenceClassification(nn.Module):
    def __init__(self, vocab=50, width=24, num_labels=2):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, width, padding_idx=0)
        self.encoder = nn.TransformerEncoderLayer(width, 2, 48, batch_first=True, dropout=0.1)
        self.classifier = nn.Linear(width, num_labels)

    def forward(self, input_ids, attention_mask, labels=None):
        hidden = self.encoder(self.embeddings(input_ids), src_key_padding_mask=attention_mask == 0)
        pooled = (hidden * attention_mask.unsqueeze(-1)).sum(1) / attention_mask.sum(1, keepdim=True)
        logits = self.classifier(pooled)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return SequenceClassifierOutput(loss=loss, logits=logits)


class Sentences(Dataset):
    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(size):
            n = int(torch.randint(3, 10, (1,), generator=g))
            ids = torch.randint(1, 50, (n,), generator=g)
            self.rows.append({'input_ids': ids.tolist(), 'labels': int((ids < 20).sum() > n / 2)})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    longest = max(len(r['input_ids']) for r in rows)
    ids = torch.tensor([r['input_ids'] + [0] * (longest - len(r['input_ids'])) for r in rows])
    return {'input_ids': ids, 'attention_mask': (ids != 0).long(), 'labels': torch.tensor([r['labels'] for r in rows])}


torch.manual_seed(42)
train_dataloader = DataLoader(Sentences(480, 1), shuffle=True, batch_size=8, collate_fn=collate)
eval_dataloader = DataLoader(Sentences(100, 2), batch_size=32, collate_fn=collate)
model = TinyForSequenceClassification()
no_decay = ['bias', 'norm']
optimizer = AdamW([
    {'params': [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)], 'weight_decay': 0.01},
    {'params': [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], 'weight_decay': 0.0},
], lr=2e-3)

num_epochs = 2
num_training_steps = num_epochs * len(train_dataloader)
num_warmup_steps = 10
lr_scheduler = LambdaLR(optimizer, lambda step: step / num_warmup_steps if step < num_warmup_steps else max(
    0.0, (num_training_steps - step) / (num_training_steps - num_warmup_steps)))

progress_bar = tqdm(range(num_training_steps))
device = torch.device('cpu')
model.to(device)
for epoch in range(num_epochs):
    model.train()
    for batch in train_dataloader:
        batch = {k: v.to(device) for k, v in batch.items()}
        outputs = model(**batch)
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
        progress_bar.update(1)

    model.eval()
    losses, hits = [], 0
    for batch in eval_dataloader:
        with torch.no_grad():
            outputs = model(**batch)
        losses.append(outputs.loss.item())
        hits += (outputs.logits.argmax(-1) == batch['labels']).sum().item()
    perplexity = math.exp(sum(losses) / len(losses))
    print(f"epoch {epoch}: perplexity: {perplexity:.4f} accuracy: {hits / 100:.3f}")
