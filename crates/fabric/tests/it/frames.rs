use super::*;
use phalanx_fabric::{FrameKind, LinkEvent};
use phalanx_wire::codec;
use tempfile::tempdir;

#[tokio::test]
async fn frames_come_in_order_between_up_and_down_and_a_slow_user_loses_none() {
    const FRAMES: u64 = 20_000;
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let b = start(config(dir.path(), "b")).await;
    let to_b = meets(&a, b.id()).await;
    for i in 0..FRAMES {
        if i == 500 {
            // Later than the first frames: they wait for the channel to be opened.
            tokio::task::yield_now().await;
        }
        to_b.send(FrameKind::Jobs, &i).unwrap();
        if i == 900 {
            break;
        }
    }
    let mut channel = b.channel(FrameKind::Jobs);
    for i in 901..FRAMES {
        to_b.send(FrameKind::Jobs, &i).unwrap();
    }
    let LinkEvent::Up(peer) = within(channel.recv()).await.unwrap() else { panic!("not up first") };
    assert_eq!(peer.id(), a.id());
    for i in 0..FRAMES {
        let LinkEvent::Frame { link, body } = within(channel.recv()).await.unwrap() else {
            panic!("frame {i}")
        };
        assert_eq!((link, codec::decode::<u64>(&body).unwrap()), (peer.key(), i));
    }
    within(a.shutdown()).await;
    let LinkEvent::Down { link, node, goodbye, .. } = within(channel.recv()).await.unwrap() else {
        panic!("not down last")
    };
    assert_eq!((link, &node, goodbye), (peer.key(), a.id(), true));
    assert!(peer.send(FrameKind::Jobs, &1u8).is_err());
    within(b.shutdown()).await;
    assert!(within(channel.recv()).await.is_none());
}
