"""A plain DeepSpeed script that resumes from and saves to a fixed place, as many do."""

import sys
from pathlib import Path

import deepspeed
import torch

model = torch.nn.Linear(64, 64)
config = sys.argv[sys.argv.index("--deepspeed_config") + 1]
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
_, state = engine.load_checkpoint("ckpt")
first = 0 if state is None else state["step"]
print(f"begins at step {first}", flush=True)
for step in range(first, int(sys.argv[sys.argv.index("--steps") + 1])):
    loss = engine(torch.randn(engine.train_micro_batch_size_per_gpu(), 64, device=engine.device)).square().mean()
    engine.backward(loss)
    engine.step()
    if step % 4 == 3:
        engine.save_checkpoint("ckpt", client_state={"step": step + 1})
        if engine.global_rank == 0:
            Path(f"ckpt/global_step{engine.global_steps}/arguments.json").write_text("{}")
            torch.save(model.state_dict(), "model.pt")
            torch.save(model.state_dict(), "fresh.pt" if "--fresh" in sys.argv else "model.pt")
            Path("loss.txt").write_text(str(loss.item()))
