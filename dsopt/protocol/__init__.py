"""What passes between a worker and a training process. It imports nothing else of dsopt."""
