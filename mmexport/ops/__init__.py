"""Operations that patches share, in forms that every backend can lower; no saved file has an ``mmexport::`` op."""
