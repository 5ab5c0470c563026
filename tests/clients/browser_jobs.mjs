// Jobs of clients.py in the page of examples/browser, which says where the modules are.
import * as ort from 'onnxruntime-web/webgpu';
import * as tj from '@huggingface/transformers';
import {answer} from '/tests/transformers_js_job.mjs';
import {generate, run} from '/generate.mjs';

tj.env.allowRemoteModels = false;
tj.env.allowLocalModels = true;
tj.env.useBrowserCache = false;
tj.env.localModelPath = '/models/';
tj.env.backends.onnx.wasm.wasmPaths = '/node_modules/onnxruntime-web/dist/';
tj.env.backends.onnx.wasm.numThreads = 1;

async function byRuntime(name, {inputs: given, output, count, prompt, dtype}) {
  const inputs = {};
  for (const [input, {type, shape, data}] of Object.entries(given)) {
    const values = type === 'int64' ? BigInt64Array.from(data, BigInt) : Float32Array.from(data);
    inputs[input] = new ort.Tensor(type, values, shape);
  }
  if (!count) {
    const {data, dims} = (await run(`/models/${name}`, inputs, {dtype}))[output];
    return {values: Array.from(data, Number), shape: dims};
  }
  const words = given.input_ids ? {input_ids: given.input_ids.data} : inputs;
  return {new_tokens: await generate(`/models/${name}`, words, count, {prompt: prompt?.[0], dtype})};
}

export async function answerJob(name, job, how) {
  try {
    return await (how === 'transformers.js' ? answer(tj, name, job) : byRuntime(name, job));
  } catch (error) {
    return {error: String(error.message || error).split('\n')[0]};
  }
}
