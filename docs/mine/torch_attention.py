import torch


def attention(query, key, value):
    scores = query @ key.transpose(-2, -1) / key.size(-2) ** 0.5
    return torch.softmax(scores, dim=-1) @ value
