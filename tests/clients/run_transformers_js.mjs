// Opens folders with transformers.js: node run_transformers_js.mjs NODE_MODULES JOBS.json ANSWERS.json
//
// Jobs and answers are those of clients.py. A job that fails does not stop the next ones.
import fs from 'node:fs';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const [modules, jobsFile, answersFile] = process.argv.slice(2);
const file = path.resolve(modules, '@huggingface/transformers/dist/transformers.node.mjs');
const tj = await import(pathToFileURL(file));
const {answer} = await import(pathToFileURL(path.join(import.meta.dirname, 'transformers_js_job.mjs')));
tj.env.allowRemoteModels = false;
tj.env.useBrowserCache = false;

const answers = [];
for (const job of JSON.parse(fs.readFileSync(jobsFile, 'utf8'))) {
  tj.env.localModelPath = path.dirname(job.folder);
  try {
    answers.push(await answer(tj, path.basename(job.folder), job));
  } catch (error) {
    answers.push({error: String(error.message || error).split('\n')[0]});
  }
}
fs.writeFileSync(answersFile, JSON.stringify(answers));
