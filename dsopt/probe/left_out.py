"""Functions that save or load a training, by library: those that do nothing in an experiment, and those that write."""

from typing import Final

from dsopt.probe.answers import Done, Nobody, of_loading

ITS_PATH: Final = object()
FOLDER: Final = "save_directory"  # the argument of what writes several files


# module, class (of a method), function, and what it returns in an experiment: as if it had saved, or had found no
# checkpoint; `ITS_PATH` is the path that it got, `of_loading` is asked
LEFT_OUT: Final = (
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "save_checkpoint", True),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "save_16bit_model", True),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "load_checkpoint", of_loading),
    ("accelerate.accelerator", "Accelerator", "init_trackers", None),
    ("accelerate.accelerator", "Accelerator", "get_tracker", Nobody()),
    ("accelerate.accelerator", "Accelerator", "save_state", ITS_PATH),
    ("accelerate.accelerator", "Accelerator", "save_model", None),
    ("accelerate.accelerator", "Accelerator", "load_state", None),
    ("torch.distributed.checkpoint.state_dict_saver", None, "save", None),
    ("torch.distributed.checkpoint.state_dict_saver", None, "async_save", Done()),
    ("torch.distributed.checkpoint.state_dict_saver", None, "save_state_dict", None),
    ("torch.distributed.checkpoint.state_dict_loader", None, "load", None),
    ("torch.distributed.checkpoint.state_dict_loader", None, "load_state_dict", None),
    # whatever the arguments say by then: it also deletes older checkpoints (`save_total_limit`)
    ("transformers.trainer", "Trainer", "_save_checkpoint", None),
    ("transformers.trainer", "Trainer", "save_model", None),
    ("transformers.trainer", "Trainer", "push_to_hub", None),
    ("transformers.utils.hub", "PushToHubMixin", "push_to_hub", None),
    # with the token that a login has left, whatever variables a run gets
    *(
        ("huggingface_hub.hf_api", "HfApi", method, None)
        for method in (
            "create_commit",
            "create_repo",
            "delete_repo",
            "upload_file",
            "upload_folder",
            "upload_large_folder",
        )
    ),
)
# what writes to a path: module, class (of a method), function, index and name of the path argument
WRITERS: Final = (
    ("torch.serialization", None, "save", 1, "f"),
    ("torch.jit._serialization", None, "save", 1, "f"),
    ("torch.jit._script", "ScriptModule", "save", 1, "f"),
    ("torch.jit._script", "RecursiveScriptModule", "save", 1, "f"),
    ("torch.export", None, "save", 1, "f"),
    ("safetensors", None, "serialize_file", 1, "filename"),  # which its functions for each library call
    ("tokenizers", "Tokenizer", "save", 1, "path"),
    ("transformers.modeling_utils", "PreTrainedModel", "save_pretrained", 1, FOLDER),
    ("peft.peft_model", "PeftModel", "save_pretrained", 1, FOLDER),
)
