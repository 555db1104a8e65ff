//! The producer of docs/partitions.md in Python: it adds messages to the same partitions as ours.

use std::collections::HashMap;
use std::fs;

use millstream_worker::partitions::partition_of;

use crate::program;
use crate::support::process::Server;
use crate::support::run::new_folder;

const KEYS: usize = 10_000;

pub(crate) fn python_producer(server: &Server) {
    let page = fs::read_to_string(program::repository().join("docs/partitions.md")).expect("read the page");
    let (_, code) = page.split_once("```python\n# send.py\n").expect("the producer");
    let (code, _) = code.split_once("```").expect("its end");
    assert_eq!(code.lines().count(), 5, "a producer of five lines");
    let mut client = server.client();
    let mut list = Vec::new();
    for n in 0..12 {
        let name = format!("orders:{{{n}}}.1");
        client.call(&["XGROUP", "CREATE", &name, "g", "0", "MKSTREAM"]);
        list.push(name);
    }
    let json = serde_json::to_string(&list).expect("JSON");
    client.call(&["HSET", "{orders}:partitions", "generation", "1", "1", &json, "hash", "crc32-65521"]);

    let code = code.replace("redis.Redis(", &format!("redis.Redis(port={}, ", server.port));
    let program = format!(
        "{code}\nfor n in range({KEYS}):\n    assert send(f'k-{{n}}-ü', {{'key': f'k-{{n}}-ü'}}) is not None\nfor name in names:\n    \
         for _, fields in r.xrange(name):\n        print(name, fields['key'])\n\
         r.delete(names[0])\nassert any(send(f'k-{{n}}-ü', {{'n': 1}}) is None for n in range(100))\n"
    );
    let folder = new_folder();
    fs::write(folder.join("send.py"), program).expect("write the program");
    let printed = program::run(program::python("python", server).arg(folder.join("send.py")));
    fs::remove_dir_all(&folder).expect("remove the folder");
    let found: HashMap<&str, &str> = printed
        .lines()
        .map(|line| line.split_once(' ').expect("name and key"))
        .map(|(name, key)| (key, name))
        .collect();
    assert_eq!(found.len(), KEYS);
    for (key, name) in found {
        assert_eq!(name, list[partition_of(key.as_bytes(), list.len())], "{key}");
    }
}
