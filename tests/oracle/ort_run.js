// Runs ONNX models with ONNX Runtime: node ort_run.js NODE_MODULES JOBS.json
// Without JOBS.json, a path of one is read from each line of stdin; behind its answers comes an empty line.
//
// JOBS.json is a list of {model, inputs: [{name, dtype, shape, file}], out}. A job's outputs go to
// out/<index>.bin, little-endian. Prints one line of JSON a job: {ok, outputs: [{name, dtype, shape}]}
// or {ok: false, error}. A job that fails does not stop the next ones.
'use strict';
const fs = require('fs');
const path = require('path');

const ort = require(path.resolve(process.argv[2], 'onnxruntime-node'));

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  int64: BigInt64Array,
  int32: Int32Array,
  uint8: Uint8Array,
  int8: Int8Array,
  bool: Uint8Array,
};

function readTensor(spec) {
  const bytes = fs.readFileSync(spec.file);
  const Type = ARRAYS[spec.dtype];
  const copy = new Uint8Array(bytes).buffer;  // aligned, whatever the pool of readFileSync gave
  return new ort.Tensor(spec.dtype, new Type(copy), spec.shape);
}

async function run(job) {
  const options = {logSeverityLevel: 3, intraOpNumThreads: 1, interOpNumThreads: 1};
  const session = await ort.InferenceSession.create(job.model, options);
  const feeds = {};
  for (const spec of job.inputs) feeds[spec.name] = readTensor(spec);
  const results = await session.run(feeds);
  fs.mkdirSync(job.out, {recursive: true});
  const outputs = session.outputNames.map((name, index) => {
    const {data, dims, type} = results[name];
    fs.writeFileSync(path.join(job.out, `${index}.bin`), new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return {name, dtype: type, shape: [...dims]};
  });
  await session.release();
  return {ok: true, outputs};
}

async function answer(listing) {
  for (const job of JSON.parse(fs.readFileSync(listing, 'utf8'))) {
    let answer;
    try {
      answer = await run(job);
    } catch (error) {
      answer = {ok: false, error: String(error.message || error)};
    }
    console.log(JSON.stringify(answer));
  }
}

(async () => {
  if (process.argv[3]) return answer(process.argv[3]);
  for await (const listing of require('readline').createInterface({input: process.stdin})) {
    await answer(listing);
    console.log('');
  }
})();
