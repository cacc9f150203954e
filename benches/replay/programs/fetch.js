const [plain, secure] = process.argv.slice(2);
(async () => {
  const get = async (url) => (await fetch(url)).text();
  for (const text of await Promise.all([0, 1, 2, 3].map((number) => get(`${secure}/page?${number}`)))) process.stdout.write(text);
  process.stdout.write(await get(`${plain}/page`));
})();
