import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

# In the manner of neural style transfer: the pixels are trained, and LBFGS calls a closure.
torch.manual_seed(33)
content_img = torch.rand(1, 3, 16, 16)
style_img = torch.rand(1, 3, 16, 16)
cnn = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1)).eval().requires_grad_(False)


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


content_target = cnn(content_img).detach()
style_target = gram_matrix(cnn(style_img)).detach()
input_img = content_img.clone()


def run_style_transfer(input_img, num_steps=60, style_weight=1e4, content_weight=1):
    input_img.requires_grad_(True)
    optimizer = optim.LBFGS([input_img], max_iter=3)
    print('Optimizing..')
    run = [0]
    while run[0] <= num_steps:

        def closure():
            with torch.no_grad():
                input_img.clamp_(0, 1)
            optimizer.zero_grad()
            features = cnn(input_img)
            style_score = F.mse_loss(gram_matrix(features), style_target) * style_weight
            content_score = F.mse_loss(features, content_target) * content_weight
            loss = style_score + content_score
            loss.backward()
            run[0] += 1
            if run[0] % 10 == 0:
                print("run {}: Style Loss : {:4f} Content Loss: {:4f}".format(
                    run[0], style_score.item(), content_score.item()))
            return style_score + content_score

        optimizer.step(closure)

    with torch.no_grad():
        input_img.clamp_(0, 1)
    return input_img


output = run_style_transfer(input_img)
print('mean', output.mean().item())
