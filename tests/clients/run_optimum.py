"""Opens folders with optimum-onnx. usage: run_optimum.py JOBS.json ANSWERS.json (files of clients.py)"""

import numpy as np
import optimum.onnxruntime as optimum
import torch
from transformers import AutoTokenizer

from answering import answers


def answer(job: dict) -> dict:
    kind = getattr(optimum, f"ORTModelFor{job['auto'] or 'FeatureExtraction'}")
    model = kind.from_pretrained(job["folder"])
    given = {name: torch.tensor(np.array(value)) for name, value in job["arrays"].items()}
    if not job["count"]:
        values = model(**given)[job["output"]]
        return {"values": values.flatten().tolist(), "shape": list(values.shape)}
    if job["prompt"]:
        given["decoder_input_ids"] = torch.tensor(job["prompt"])
    rows = model.generate(**given, max_new_tokens=job["count"], do_sample=False, num_beams=1).tolist()
    tokenizer = AutoTokenizer.from_pretrained(job["folder"])
    return {"tokens": rows, "texts": tokenizer.batch_decode(rows, skip_special_tokens=True)}


answers(answer)
