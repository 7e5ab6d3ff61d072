"""Define operations that patches share, in forms that every backend can lower; no file has an ``mmexport::`` op."""
