// One job of clients.py by transformers.js, in Node and in a browser alike.

function tensors(tj, job) {
  const found = {};
  for (const [name, {type, shape, data}] of Object.entries(job.inputs)) {
    const values = type === 'int64' ? BigInt64Array.from(data, BigInt) : Float32Array.from(data);
    found[name] = new tj.Tensor(type, values, shape);
  }
  return found;
}

// tj: the module; name: of the model in tj.env.localModelPath.
export async function answer(tj, name, job) {
  const options = job.dtype ? {dtype: job.dtype} : {};
  const model = await tj[`AutoModel${job.auto && 'For' + job.auto}`].from_pretrained(name, options);
  const inputs = tensors(tj, job);
  try {
    if (!job.count) {
      const {data, dims} = (await model(inputs))[job.output];
      return {values: Array.from(data, Number), shape: dims};
    }
    const {input_features: sound, ...rest} = inputs;
    const given = sound ? {inputs: sound, decoder_input_ids: job.prompt} : rest;
    const found = await model.generate({...given, max_new_tokens: job.count, do_sample: false});
    const rows = found.tolist().map(row => row.map(Number));
    const tokenizer = await tj.AutoTokenizer.from_pretrained(name);
    return {tokens: rows, texts: tokenizer.batch_decode(rows, {skip_special_tokens: true})};
  } finally {
    await model.dispose();
  }
}
