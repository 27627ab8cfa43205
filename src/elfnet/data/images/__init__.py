"""How single images are changed before they become part of a batch, with NumPy and Pillow; nothing here needs torch."""
