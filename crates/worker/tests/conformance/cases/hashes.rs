//! Hashes: get, set and delete fields.

use bytes::Bytes;
use millstream_worker::Admin;
use millstream_worker::backend::ErrorKind;
use millstream_worker::names::retry_key;

use super::{kind, make_a_string};

pub(crate) async fn all(backend: &dyn Admin) {
    set_get_and_delete_fields(backend).await;
    refuse_other_types(backend).await;
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn pair(field: &str, value: &[u8]) -> (String, Bytes) {
    (field.to_owned(), Bytes::copy_from_slice(value))
}

async fn set_get_and_delete_fields(backend: &dyn Admin) {
    let key = &*retry_key("hashes", "g");
    assert_eq!(backend.hash_get(key, &names(&["a", "b"])).await.unwrap(), [None, None]);
    assert_eq!((backend.hash_get_all(key).await.unwrap(), backend.hash_len(key).await.unwrap()), (vec![], 0));
    assert_eq!(backend.hash_delete(key, &names(&["a"])).await.unwrap(), 0);
    backend.hash_set(key, &[]).await.unwrap();
    assert_eq!(backend.hash_get(key, &[]).await.unwrap(), []);
    assert_eq!(backend.hash_delete(key, &[]).await.unwrap(), 0);

    backend.hash_set(key, &[pair("a", b"1"), pair("b", b"\xff\0")]).await.unwrap();
    backend.hash_set(key, &[pair("b", b"\r\n"), pair("c", b"")]).await.unwrap();
    let values = backend.hash_get(key, &names(&["c", "none", "b", "a"])).await.unwrap();
    let expected = [Some(&b""[..]), None, Some(b"\r\n"), Some(b"1")];
    assert_eq!(values, expected.map(|value| value.map(Bytes::copy_from_slice)));
    // So many fields that no server keeps them in its compact form.
    let many: Vec<_> = (0..2000).map(|n| pair(&format!("{n}-0"), n.to_string().as_bytes())).collect();
    backend.hash_set(key, &many).await.unwrap();
    let mut all = backend.hash_get_all(key).await.unwrap();
    all.sort_unstable();
    let mut expected = many.clone();
    expected.extend([pair("a", b"1"), pair("b", b"\r\n"), pair("c", b"")]);
    expected.sort_unstable();
    assert_eq!(all, expected);
    assert_eq!(backend.hash_len(key).await.unwrap(), 2003);
    let mut fields = backend.hash_fields(key).await.unwrap();
    fields.sort_unstable();
    assert!(fields.iter().eq(expected.iter().map(|(field, _)| field)));

    let fields: Vec<String> = many.into_iter().map(|(field, _)| field).collect();
    assert_eq!(backend.hash_delete(key, &fields).await.unwrap(), 2000);
    assert_eq!(backend.hash_delete(key, &names(&["a", "none", "b", "c"])).await.unwrap(), 3);
    assert_eq!(backend.hash_get_all(key).await.unwrap(), []);
    assert_eq!(backend.hash_fields(key).await.unwrap(), [""; 0]);
}

async fn refuse_other_types(backend: &dyn Admin) {
    let key = "hashes:string";
    make_a_string(backend, key).await;
    let wrong = Some(ErrorKind::WrongType);
    assert_eq!(kind(backend.hash_get(key, &names(&["a"])).await), wrong);
    assert_eq!(kind(backend.hash_get_all(key).await), wrong);
    assert_eq!(kind(backend.hash_fields(key).await), wrong);
    assert_eq!(kind(backend.hash_len(key).await), wrong);
    assert_eq!(kind(backend.hash_set(key, &[pair("a", b"1")]).await), wrong);
    assert_eq!(kind(backend.hash_delete(key, &names(&["a"])).await), wrong);
}
