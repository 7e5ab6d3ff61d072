"""Spread attention weights of a neighbourhood over the whole feature map."""
