"""Make exported programs: what all formats that start from torch.export share."""
