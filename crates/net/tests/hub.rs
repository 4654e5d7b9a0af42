//! Links between a hub and its members, over loopback.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tweed_net::{Admitted, Event, HubLinks, HubOptions, Key, Secret, MOST_QUEUED};

const PATIENCE: Duration = Duration::from_secs(20);

fn options(secret: Option<&str>) -> HubOptions {
    let secret = secret.map(|text| Secret::new(text).unwrap());
    HubOptions {
        secret,
        testbed: None,
        key_file: None,
        silence: PATIENCE,
        patience: PATIENCE,
        most_bytes: 64,
        most_queued: MOST_QUEUED,
    }
}

fn links() -> HubLinks {
    HubLinks::open(options(None)).unwrap()
}

fn listening() -> (HubLinks, String) {
    let hub = links();
    let address = hub.listen("127.0.0.1:0".parse().unwrap(), "hub").unwrap();
    (hub, address.to_string())
}

fn call(member: &HubLinks, address: &str, key: Option<Key>) -> Result<u64, String> {
    let link = member.call(address, key, &|| false).map_err(|e| e.to_string())?;
    let own = next(member);
    assert!(matches!(own, Event::Joined(number, _) if number == link), "{own:?}");
    Ok(link)
}

/// What happens next; one at a time, as that is all there is in these tests.
fn next(links: &HubLinks) -> Event {
    let mut events = links.next(PATIENCE).unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    events.pop().unwrap()
}

fn joined(hub: &HubLinks) -> (u64, Key) {
    match next(hub) {
        Event::Joined(link, key) => (link, key),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_of_any_length_go_both_ways() {
    let ((hub, address), member) = (listening(), links());
    let up = call(&member, &address, Some(hub.key())).unwrap();
    let (down, key) = joined(&hub);
    assert_eq!(key, member.key());
    member.send(up, b"ready", None);
    assert_eq!(next(&hub), Event::Message(down, b"ready".to_vec()));
    let model: Vec<u8> = (0..10_000_000).map(|i| (i % 251) as u8).collect();
    member.allow(up, 1 << 30);
    std::thread::scope(|scope| {
        hub.send(down, b"task", Some(Arc::new(model.clone())));
        scope.spawn(|| {
            while hub.unsent(None) > 0 {
                hub.next(Duration::from_millis(5)).unwrap();
            }
        });
        let Event::Message(_, came) = next(&member) else { panic!("no message") };
        assert!(came == [&b"task"[..], &model].concat());
    });
}

#[test]
fn what_was_entered_leaves_with_the_next_message_or_when_something_is_waited_for() {
    let ((hub, address), member) = (listening(), links());
    let up = call(&member, &address, None).unwrap();
    let (down, _) = joined(&hub);
    let heard = |text: &[u8]| Event::Message(down, text.to_vec());
    member.enter(up, b"offer", None);
    assert_eq!((member.unsent(Some(up)), hub.next(Duration::ZERO).unwrap()), (1, Vec::new()));
    member.send(up, b"payload", None);
    let mut came = hub.next(PATIENCE).unwrap();
    while came.len() < 2 {
        came.extend(hub.next(PATIENCE).unwrap());
    }
    assert_eq!(came, [heard(b"offer"), heard(b"payload")]);
    member.enter(up, b"outcome", None);
    member.next(Duration::ZERO).unwrap();
    assert_eq!(next(&hub), heard(b"outcome"));
}

#[test]
fn a_member_that_calls_anew_loses_its_older_link() {
    let ((hub, address), member) = (listening(), links());
    call(&member, &address, None).unwrap();
    let (first, _) = joined(&hub);
    let second = member.call(&address, None, &|| false).unwrap();
    let events = hub.next(PATIENCE).unwrap();
    assert!(
        matches!(&events[0], Event::Left(link, why) if *link == first && why.contains("anew")),
        "{events:?}"
    );
    assert!(matches!(&events[1], Event::Joined(_, key) if *key == member.key()), "{events:?}");
    member.send(second, b"ready", None);
    assert!(matches!(next(&hub), Event::Message(..)));
}

#[test]
fn who_has_no_time_hears_what_is_there() {
    let ((hub, address), member) = (listening(), links());
    let up = call(&member, &address, None).unwrap();
    joined(&hub);
    member.send(up, b"ready", None);
    let until = std::time::Instant::now() + PATIENCE;
    while hub.next(Duration::ZERO).unwrap().is_empty() {
        assert!(std::time::Instant::now() < until);
    }
}

#[test]
fn the_next_process_has_the_same_port_at_once() {
    let ((hub, address), member) = (listening(), links());
    call(&member, &address, None).unwrap();
    joined(&hub);
    drop(hub); // which hangs up first, so that its end of the link fades slowly
    let again = links();
    assert_eq!(again.listen(address.parse().unwrap(), "hub").unwrap().to_string(), address);
    assert!(matches!(next(&member), Event::Left(..)));
    call(&member, &address, None).unwrap();
}

#[test]
fn whoever_hangs_up_has_left() {
    let ((hub, address), member) = (listening(), links());
    call(&member, &address, None).unwrap();
    let (link, _) = joined(&hub);
    drop(member);
    assert_eq!(next(&hub), Event::Left(link, "it hung up".into()));
}

#[test]
fn another_process_at_the_hubs_address_is_not_the_hub() {
    let ((_hub, address), member) = (listening(), links());
    let error = call(&member, &address, Some([9; 32])).unwrap_err();
    assert!(error.contains("not the one that was given for the hub"), "{error}");
}

#[test]
fn a_secret_admits_and_without_one_only_loopback_is_open() {
    let hub = HubLinks::open(options(Some("a secret of sixteen"))).unwrap();
    let address = hub.listen("127.0.0.1:0".parse().unwrap(), "hub").unwrap().to_string();
    let error = call(&links(), &address, None).unwrap_err();
    assert!(error.contains("wrong secret"), "{error}");
    let member = HubLinks::open(options(Some("a secret of sixteen"))).unwrap();
    call(&member, &address, Some(hub.key())).unwrap();
    assert_eq!(hub.refused(), [("secret", 1)]);
    let error = links().listen("0.0.0.0:0".parse().unwrap(), "hub").unwrap_err().to_string();
    assert!(error.contains("TWEED_SECRET"), "{error}");
}

#[test]
fn who_may_come_in_is_said_by_the_hub() {
    let ((hub, address), [a, b, c]) = (listening(), [links(), links(), links()]);
    hub.admit(Admitted { keys: Some(BTreeSet::from([a.key(), b.key()])), most: 1 });
    call(&a, &address, None).unwrap();
    let (link, _) = joined(&hub);
    assert!(call(&c, &address, None).unwrap_err().contains("not on the list"));
    assert!(call(&b, &address, None).unwrap_err().contains("as many members as there may be"));
    hub.expel(&a.key());
    assert_eq!(next(&hub), Event::Left(link, "it was expelled".into()));
    assert!(matches!(next(&a), Event::Left(..)));
    assert!(call(&a, &address, None).unwrap_err().contains("it was expelled"));
    call(&b, &address, None).unwrap();
}

#[test]
fn who_announces_too_much_is_cut_off_before_memory_is_taken() {
    let ((hub, address), member) = (listening(), links());
    let up = call(&member, &address, None).unwrap();
    let (link, _) = joined(&hub);
    member.send(up, &[0; 65], None);
    let left = next(&hub);
    assert!(
        matches!(&left, Event::Left(l, why) if *l == link && why.contains("65 bytes, where 64")),
        "{left:?}"
    );
}

#[test]
fn who_does_not_read_is_cut_off() {
    let ((hub, address), member) = (listening(), links());
    call(&member, &address, None).unwrap();
    let (link, _) = joined(&hub);
    let model = Arc::new(vec![0u8; 64 << 20]);
    (0..4).for_each(|_| hub.send(link, b"task", Some(Arc::clone(&model) as _)));
    let Event::Left(left, why) = next(&hub) else { panic!("it is told on and on") };
    assert!(left == link && why.starts_with("it does not read what it is told: 3 messages of 2013"), "{why}");
    assert_eq!(Arc::strong_count(&model), 1);
}

#[test]
fn strangers_are_told_nothing() {
    let (hub, address) = listening();
    let mut stranger = TcpStream::connect(&address).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut heard = Vec::new();
    let _ = stranger.read_to_end(&mut heard);
    assert!(heard.starts_with(b"\x89tweed"), "{heard:?}");
    assert!(hub.next(Duration::ZERO).unwrap().is_empty());
    drop(hub); // ends its thread, which has counted by then
}
