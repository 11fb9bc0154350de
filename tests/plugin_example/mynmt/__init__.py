"""Parts of nmt outside its package."""
