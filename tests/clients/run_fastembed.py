"""Opens folders with fastembed. usage: run_fastembed.py JOBS.json ANSWERS.json (files of clients.py)"""

from pathlib import Path

import numpy as np
from answering import answers
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType


def answer(job: dict) -> dict:
    folder = Path(job["folder"])
    name = f"tests/{folder.name}"
    TextEmbedding.add_custom_model(
        model=name,
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf=name),
        dim=32,
        model_file="model.onnx",
        additional_files=["model.onnx_data"],
    )
    model = TextEmbedding(name, specific_model_path=str(folder))
    values = np.array(list(model.embed(job["texts"])))
    return {"values": values.flatten().tolist(), "shape": list(values.shape)}


answers(answer)
