_base_ = 'mmseg::setr/setr_vit-l_naive_8xb2-160k_ade20k-512x512.py'
