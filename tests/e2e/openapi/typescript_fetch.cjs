// Calls every operation with the TypeScript client that openapi-generator has made.
// Arguments: the compiled client, the server's URL, the key. Reads the calls as JSON, writes status and answer of each.
const [, , client, url, key] = process.argv;
const made = require(client);
const configuration = new made.Configuration({basePath: url, accessToken: key});

const camel = name => name.replace(/-(.)/g, (_, letter) => letter.toUpperCase()).replace(/^./, letter => letter.toLowerCase());

const pascal = name => name.split(/[ _]/).map(part => part.replace(/^./, letter => letter.toUpperCase())).join('');

async function call({tag, operation, parameters, body, schema}) {
    const group = new made[`${pascal(tag)}Api`](configuration);
    const given = Object.fromEntries(Object.entries(parameters).map(([name, value]) => [camel(name), value]));
    const read = made[`${pascal(schema)}FromJSON`];
    if (body !== null) given[read ? camel(pascal(schema)) : 'body'] = read ? read(body) : body;
    const answer = await group[`${camel(pascal(operation))}Raw`](given);
    return [answer.raw.status, await answer.value()];
}

async function main() {
    const pieces = [];
    for await (const piece of process.stdin) pieces.push(piece);
    const answers = [];
    for (const asked of JSON.parse(pieces.join(''))) answers.push(await call(asked));
    console.log(JSON.stringify(answers));
}

main();
