// Text by an exported model in a browser, with ONNX Runtime Web alone. The folder is one that
//     onnx-external export MODEL -o FOLDER --for transformers.js
// writes: graphs in onnx/, each with its data beside it, and config.json, which says how many files
// of data a graph has. transformers.js does the same, with tokenizers and all settings of generate().
import * as ort from 'onnxruntime-web/webgpu';

const read = async url => (await fetch(url)).json();
const integers = values => new ort.Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
const only = (session, values) => Object.fromEntries(session.inputNames.map(name => [name, values[name]]));

// What --variants calls them, and what follows in the names of their files.
const suffixes = {
  fp32: '', fp16: '_fp16', q8: '_quantized', uint8: '_uint8', q4: '_q4', q4f16: '_q4f16',
};

async function open(folder, name, config, dtype) {
  const settings = config['transformers.js_config'];
  const file = `${name}${suffixes[dtype ?? settings.dtype]}.onnx`;
  const count = Number(settings.use_external_data_format[file] ?? 0);
  const paths = Array.from({length: count}, (_, i) => (i ? `${file}_data_${i}` : `${file}_data`));
  const externalData = paths.map(path => ({path, data: `${folder}/onnx/${path}`}));
  const options = {externalData, executionProviders: ['wasm']};
  return ort.InferenceSession.create(`${folder}/onnx/${file}`, options);
}

// A cache without tokens, and states of zeros: all sizes that vary are 0, but for that of the batch.
function emptyCache(session) {
  const caches = session.inputMetadata.filter(({name}) => /^past_\w+\./.test(name));
  return Object.fromEntries(caches.map(({name, type, shape}) => {
    const dims = shape.map((size, place) => (typeof size === 'number' ? size : place ? 0 : 1));
    const kind = type === 'float16' ? Uint16Array : Float32Array;
    return [name, new ort.Tensor(type, new kind(dims.reduce((one, other) => one * other)), dims)];
  }));
}

function likeliest({data, dims}) {
  const last = data.subarray(data.length - dims.at(-1));
  return last.reduce((best, value, id) => (value > last[best] ? id : best), 0);
}

// Runs an encoder, or any other graph without a cache, once.
//   inputs: tensors by name; returns the outputs by name
//   dtype: the variant, such as 'q4'; by default the first one of the export
export async function run(folder, inputs, {name = 'model', dtype} = {}) {
  const session = await open(folder, name, await read(`${folder}/config.json`), dtype);
  const found = await session.run(only(session, inputs));
  await session.release();
  return found;
}

// Returns the tokens that a decoder adds, one by one the likeliest, up to the one that ends a text.
//   inputs: {input_ids: [...]}, or an encoder's {input_features: tensor}
//   prompt: how a decoder's text behind an encoder begins; by default as the config says
//   dtype: the variant, such as 'q4'; by default the first one of the export
export async function generate(folder, inputs, count, {prompt, dtype} = {}) {
  const config = await read(`${folder}/config.json`);
  const settings = {...config, ...await read(`${folder}/generation_config.json`)};
  const ends = [settings.eos_token_id].flat();
  let words = inputs.input_ids, fixed = {}, name = 'model';
  if (config.is_encoder_decoder) {
    const text = words && {input_ids: integers(words), attention_mask: integers(words.map(() => 1))};
    const encoded = await run(folder, {...inputs, ...text}, {name: 'encoder_model', dtype});
    fixed = {encoder_hidden_states: encoded.last_hidden_state, encoder_attention_mask: text?.attention_mask};
    words = prompt ?? [settings.decoder_start_token_id];
    name = 'decoder_model_merged';
  }
  const session = await open(folder, name, config, dtype);
  let cache = emptyCache(session), place = 0;
  const begun = words.length;
  while (words.length < begun + count) {
    const outputs = await session.run(only(session, {
      ...fixed,
      ...cache,
      input_ids: integers(words.slice(place)),
      attention_mask: integers(words.map(() => 1)),
      position_ids: integers(words.map((_, position) => position).slice(place)),
      use_cache_branch: new ort.Tensor('bool', [place > 0], [1]),
    }));
    for (const [output, value] of Object.entries(outputs)) {
      const [, state, rest] = output.match(/^present(_\w+)?(\..*)/) ?? [];
      if (rest) cache[`past${state ?? '_key_values'}${rest}`] = value;
    }
    place = words.length;
    words = [...words, likeliest(outputs.logits)];
    if (ends.includes(words.at(-1))) break;
  }
  await session.release();
  return words.slice(begun);
}
