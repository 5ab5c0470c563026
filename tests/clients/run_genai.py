"""Opens folders with onnxruntime-genai. usage: run_genai.py JOBS.json ANSWERS.json (files of clients.py)"""

import numpy as np
import onnxruntime_genai as og
from answering import answers


def answer(job: dict) -> dict:
    model = og.Model(job["folder"])
    tokenizer = og.Tokenizer(model)
    if job["prompt"]:
        rows = [_of_sound(model, job, row) for row in range(len(job["prompt"]))]
    else:
        rows = [_continued(model, ids, job["count"]) for ids in job["arrays"]["input_ids"].tolist()]
    return {"tokens": rows, "texts": [tokenizer.decode(row) for row in rows]}


def _continued(model: og.Model, ids: list[int], count: int) -> list[int]:
    settings = og.GeneratorParams(model)
    settings.set_search_options(max_length=len(ids) + count, do_sample=False)
    generator = og.Generator(model, settings)
    generator.append_tokens(ids)
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0).tolist()


def _of_sound(model: og.Model, job: dict, row: int) -> list[int]:
    prompt = job["prompt"][row]
    settings = og.GeneratorParams(model)
    settings.set_search_options(max_length=len(prompt) + job["count"], do_sample=False)
    generator = og.Generator(model, settings)
    given = og.NamedTensors()
    given["input_features"] = job["arrays"]["input_features"][row : row + 1].astype(np.float32)
    given["input_ids"] = np.array([prompt], np.int32)
    generator.set_inputs(given)
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0).tolist()


answers(answer)
