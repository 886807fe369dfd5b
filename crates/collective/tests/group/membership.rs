//! Membership and creation of groups.

use crate::harness::{EPOCH, connect, options, run_groups, streams};
use phalanx_collective::{Background, CollectiveError, Group, GroupOptions, Reduction};
use phalanx_types::DType;

#[test]
fn ranks_that_may_not_share_use_streams() {
    let options = (0..3).map(|rank| GroupOptions { share: rank != 1, ..options(rank, 3, b'a') });
    let groups = connect(options.collect());
    assert_eq!(groups[0].hosts(), 2);
    run_groups(groups, |group| {
        let all = group.all_gather(&[group.rank() as u8], DType::U8, "x").unwrap();
        assert_eq!(all.bytes, [0, 1, 2]);
    });
}

#[test]
fn ranks_of_this_process_find_that_they_can_share() {
    let options = (0..2).map(|rank| GroupOptions { host: None, ..options(rank, 2, 0) });
    let groups = connect(options.collect());
    assert_eq!(groups[1].hosts(), 1);
    run_groups(groups, |group| group.barrier("x").unwrap());
}

/// Five ranks; the first four are one group, the last three another. Ranks 2 and 3 have calls of both under way at once.
#[test]
fn groups_may_overlap() {
    for (first, second) in [("aaaa", "aaa"), ("abcd", "cde"), ("aabb", "bbb"), ("abab", "aba")] {
        let groups = |topology: &str| -> Vec<Option<Group>> {
            let groups = crate::harness::groups(topology);
            groups.into_iter().map(Some).collect()
        };
        let (mut first, mut second) = (groups(first), groups(second));
        std::thread::scope(|scope| {
            for rank in 0..5 {
                let in_first = first.get_mut(rank).and_then(Option::take);
                let in_second = rank.checked_sub(2).and_then(|rank| second[rank].take());
                scope.spawn(move || both(in_first, in_second));
            }
        });
    }
}

fn both(first: Option<Group>, second: Option<Group>) {
    let mut buffers = Vec::new();
    let first = first.map(|mut group| {
        buffers.extend((0..4).map(|_| group.buffer(4000).unwrap()));
        (group.rank(), Background::new(group).unwrap())
    });
    let mut handles = Vec::new();
    if let Some((rank, background)) = &first {
        for mut buffer in buffers {
            buffer.slice_mut::<f32>().unwrap().fill(*rank as f32);
            handles.push(background.all_reduce(buffer, 0..4000, DType::F32, Reduction::Sum, "first"));
        }
    }
    if let Some(mut group) = second {
        for _ in 0..20 {
            let mut data = vec![1.0_f32; 500];
            let bytes = bytemuck::cast_slice_mut(&mut data);
            group.all_reduce(bytes, DType::F32, Reduction::Sum, "second").unwrap();
            assert_eq!(data, [3.0; 500]);
        }
    }
    for handle in handles {
        let (buffer, result) = handle.wait();
        result.unwrap();
        assert_eq!(buffer.slice::<f32>().unwrap(), [6.0; 1000]);
    }
}

#[test]
fn what_is_missing_is_an_error() {
    assert_eq!(
        Group::prepare(options(3, 3, b'a')).unwrap_err(),
        CollectiveError::NoRank { rank: 3, ranks: 3 }
    );
    let prepare = |hosts: [u8; 2]| -> (Vec<_>, Vec<_>) {
        hosts
            .into_iter()
            .enumerate()
            .map(|(rank, host)| Group::prepare(options(rank, 2, host)).unwrap())
            .unzip()
    };
    let (mut prepared, ends) = prepare(*b"ab");
    assert_eq!(prepared[0].needs(&ends), [1]);
    assert_eq!(prepared[0].needs(&ends[..1]), [0_usize; 0]);
    let error = prepared.remove(0).connect(&ends, Vec::new()).unwrap_err();
    assert!(error.to_string().contains("no stream to rank 1"), "{error}");
    let error = prepared.remove(0).connect(&ends[..1], Vec::new()).unwrap_err();
    assert_eq!(error, CollectiveError::Length { what: "a group", wanted: 2, got: 1 });

    let (mut prepared, ends) = prepare(*b"aa");
    assert_eq!(prepared[1].needs(&ends), [0_usize; 0]);
    let mut group = prepared.remove(0).connect(&ends, Vec::new()).unwrap();
    let error = group.buffer(1 << 30).unwrap_err();
    assert!(matches!(error, CollectiveError::Length { .. }), "{error}");
}

/// A rank that returns with another epoch is not a member.
#[test]
fn epochs_are_kept_apart() {
    for hosts in ["ab", "aa"] {
        let options = hosts.bytes().enumerate().map(|(rank, host)| {
            let epoch = EPOCH + rank as u64;
            GroupOptions { epoch, ..options(rank, 2, host) }
        });
        let (prepared, ends): (Vec<_>, Vec<_>) =
            options.map(|options| Group::prepare(options).unwrap()).unzip();
        let streams = streams(&prepared, &ends);
        let connected = prepared.into_iter().zip(streams);
        let connected: Vec<_> = connected.map(|(one, streams)| one.connect(&ends, streams)).collect();
        if hosts == "aa" {
            let error = connected[0].as_ref().unwrap_err().to_string();
            assert!(error.contains("in epoch 7"), "{error}");
            assert!(connected[1].is_err());
            continue;
        }
        let groups = connected.into_iter().map(Result::unwrap).collect();
        let errors = run_groups(groups, |group| group.barrier("x").unwrap_err().to_string());
        assert!(errors.iter().any(|error| error.contains("is of epoch")), "{errors:?}");
    }
}
