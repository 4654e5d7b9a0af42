//! Objects of processes that meet over loopback: here all in one process, each with its own links and threads.

use std::sync::Arc;
use std::time::Duration;

use tweed_kernels::{DType, ReduceOp};
use tweed_net::{Costs, EngineError, Finished, Mode, ObjectId, Objects, ObjectsOptions, Rule, Secret};

const PATIENCE: Duration = Duration::from_secs(20);
const LARGE: usize = 1 << 20;

fn options(secret: Option<&str>) -> ObjectsOptions {
    ObjectsOptions {
        address: ([127, 0, 0, 1], 0).into(),
        secret: secret.map(|text| Secret::new(text).unwrap()),
        testbed: None,
        most_bytes: 64 << 20,
        wire_only: false,
        costs: Costs {
            latency: Duration::from_micros(50),
            rate: 1 << 30,
            message: Duration::from_micros(20),
        },
        silence: PATIENCE,
        patience: PATIENCE,
    }
}

/// Processes that know each other.
fn processes(count: usize) -> Vec<Objects> {
    let all: Vec<Objects> = (0..count).map(|_| Objects::open(options(None)).unwrap()).collect();
    all.iter().for_each(|one| meet(one, &all));
    all
}

fn meet(one: &Objects, all: &[Objects]) {
    let descriptors: Vec<Vec<u8>> = all.iter().map(|other| other.descriptor().to_vec()).collect();
    assert_eq!(one.meet(&descriptors, &|| false).unwrap(), []);
}

fn put(at: &Objects, id: u128, values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let kind = (DType::F32, &[values.len() as u64][..]);
    at.put(ObjectId(id), kind, &[&bytes], PATIENCE, &|| false).unwrap();
}

fn get(at: &Objects, id: u128) -> u64 {
    at.get(ObjectId(id), Some(PATIENCE)).unwrap()
}

fn reduce(at: &Objects, target: u128, ids: &[u128], count: u32, mode: Mode) -> u64 {
    let ids: Arc<[ObjectId]> = ids.iter().copied().map(ObjectId).collect();
    at.reduce(ObjectId(target), ids, count, (ReduceOp::Sum, mode, Rule::Measured), Some(PATIENCE)).unwrap()
}

fn ended(at: &Objects, call: u64) -> Result<Finished, EngineError> {
    let mut ended = at.ended(PATIENCE).unwrap();
    assert_eq!(ended.len(), 1, "{ended:?}");
    let (number, result) = ended.remove(0);
    assert_eq!(number, call);
    result
}

fn values(finished: &Finished) -> Vec<f32> {
    // SAFETY: all of it is there, and nobody writes it any more.
    let bytes = unsafe { std::slice::from_raw_parts(finished.memory.address(), finished.memory.len()) };
    bytes.chunks(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
}

#[test]
fn what_one_puts_all_get() {
    let all = processes(4);
    for (id, numel) in [(1, 3), (2, LARGE)] {
        let early = get(&all[3], id);
        let put_values: Vec<f32> = (0..numel).map(|i| i as f32).collect();
        put(&all[1], id, &put_values);
        for at in [&all[0], &all[2]] {
            assert_eq!(values(&ended(at, get(at, id)).unwrap()), put_values);
        }
        assert_eq!(values(&ended(&all[3], early).unwrap()), put_values);
    }
}

#[test]
fn sums_are_of_the_ids_that_are_reported() {
    let all = processes(4);
    for (at, numel) in [(0, 10), (100, LARGE)] {
        let (target, ids) = (at + 50, [at + 1, at + 2, at + 3]);
        let everywhere: Vec<u64> = all[1..].iter().map(|one| get(one, target)).collect();
        let call = reduce(&all[0], target, &ids, 3, Mode::Whole);
        for (one, id) in all[1..].iter().zip(ids) {
            put(one, id, &vec![id as f32; numel]);
        }
        let sum = ended(&all[0], call).unwrap();
        let right = vec![ids.iter().sum::<u128>() as f32; numel];
        assert_eq!(values(&sum), right);
        assert_eq!(sum.included, Some(vec![(0..4 * numel as u64, ids.map(ObjectId).to_vec())]));
        for (one, call) in all[1..].iter().zip(everywhere) {
            assert_eq!(values(&ended(one, call).unwrap()), right);
        }
    }
}

#[test]
fn a_destination_sums_what_it_has_itself() {
    for wire_only in [false, true] {
        let open = |_| Objects::open(ObjectsOptions { wire_only, ..options(None) }).unwrap();
        let all: Vec<Objects> = (0..3).map(open).collect();
        all.iter().for_each(|one| meet(one, &all));
        let ids = [1, 2, 3, 4];
        for (id, at) in ids.into_iter().zip([&all[0], &all[0], &all[1], &all[2]]) {
            put(at, id, &vec![id as f32; LARGE]);
        }
        let sum = ended(&all[0], reduce(&all[0], 9, &ids, 4, Mode::Whole)).unwrap();
        assert_eq!(values(&sum), vec![10.0; LARGE]);
        for (id, at) in ids.into_iter().zip(all.iter().cycle()) {
            assert_eq!(
                values(&ended(at, get(at, id)).unwrap()),
                vec![id as f32; LARGE],
                "a source is as it was"
            );
        }
    }
}

#[test]
fn a_process_that_comes_later_is_one_of_them() {
    let mut all = processes(3);
    put(&all[0], 7, &vec![1.5; LARGE]);
    all.push(Objects::open(options(None)).unwrap());
    meet(&all[3], &all);
    assert_eq!(values(&ended(&all[3], get(&all[3], 7)).unwrap()), vec![1.5; LARGE]);
    (0..20).for_each(|id| put(&all[3], 100 + id, &[id as f32]));
    for id in 0..20 {
        assert_eq!(values(&ended(&all[1], get(&all[1], 100 + id)).unwrap()), [id as f32]);
    }
}

#[test]
fn a_process_that_leaves_takes_its_source_along_and_a_spare_takes_its_place() {
    let mut all = processes(4);
    let ids = [1, 2, 3];
    put(&all[1], 1, &vec![1.0; LARGE]);
    let call = reduce(&all[0], 9, &ids, 2, Mode::Whole);
    drop(all.remove(1));
    put(&all[1], 2, &vec![2.0; LARGE]);
    put(&all[2], 3, &vec![4.0; LARGE]);
    let sum = ended(&all[0], call).unwrap();
    let (_, included) = &sum.included.as_ref().unwrap()[0];
    assert_eq!(values(&sum)[7], included.iter().map(|id| [0.0, 1.0, 2.0, 4.0][id.0 as usize]).sum::<f32>());
}

#[test]
fn a_sum_ends_when_one_of_its_sources_is_deleted() {
    for numel in [3, LARGE] {
        let all = processes(3);
        let call = reduce(&all[0], 9, &[1, 2, 3], 3, Mode::Whole);
        put(&all[1], 1, &vec![1.0; numel]);
        ended(&all[2], get(&all[2], 1)).unwrap();
        put(&all[2], 2, &vec![1.0; numel]);
        all[2].delete(ObjectId(3)).unwrap();
        let why = ended(&all[0], call).unwrap_err();
        let text = format!("{} was deleted", ObjectId(3));
        assert!(matches!(&why, EngineError::Usage(why) if why.contains(&text)), "{why}");
        let after = ended(&all[1], reduce(&all[1], 10, &[2, 3], 2, Mode::Whole)).unwrap_err();
        assert!(after.to_string().contains(&text), "{after}");
    }
    let all = processes(3);
    let call = reduce(&all[0], 9, &[1, 2], 2, Mode::Ranges);
    put(&all[1], 1, &vec![1.0; LARGE]);
    ended(&all[2], get(&all[2], 1)).unwrap();
    all[2].delete(ObjectId(1)).unwrap(); // by now it has a place in the sum, or it never gets one
    let why = ended(&all[0], call).unwrap_err().to_string();
    assert!(why.contains("was deleted"), "{why}");
    // One of those that are too many may go.
    let call = reduce(&all[0], 10, &[3, 4, 5], 2, Mode::Whole);
    all[1].delete(ObjectId(3)).unwrap();
    put(&all[1], 4, &vec![1.0; LARGE]);
    put(&all[2], 5, &vec![2.0; LARGE]);
    assert_eq!(values(&ended(&all[0], call).unwrap()), vec![3.0; LARGE]);
}

#[test]
fn what_has_no_room_ends_its_call_at_once() {
    let mut all = processes(2);
    all.push(Objects::open(ObjectsOptions { most_bytes: 1 << 20, ..options(None) }).unwrap());
    meet(&all[2], &all);
    put(&all[0], 1, &vec![1.0; LARGE]);
    put(&all[1], 2, &vec![1.0; LARGE]);
    let copy = ended(&all[2], get(&all[2], 1)).unwrap_err();
    assert!(matches!(&copy, EngineError::Usage(why) if why.contains("no room for 4194304 bytes")), "{copy}");
    let sum = ended(&all[2], reduce(&all[2], 3, &[1, 2], 2, Mode::Whole)).unwrap_err();
    assert!(matches!(&sum, EngineError::Usage(why) if why.contains("no room for 4194304 bytes")), "{sum}");
}

#[test]
fn wrong_uses_are_named() {
    let all = processes(2);
    let late = all[0].get(ObjectId(1), Some(Duration::from_millis(5))).unwrap();
    let text = ended(&all[0], late).unwrap_err().to_string();
    assert!(text.contains("nobody has made") && text.contains(&ObjectId(1).to_string()), "{text}");
    put(&all[0], 2, &[1.0, 2.0]);
    put(&all[1], 3, &[1.0, 2.0, 3.0]);
    let unlike = ended(&all[1], reduce(&all[1], 4, &[2, 3], 2, Mode::Whole)).unwrap_err();
    assert!(matches!(&unlike, EngineError::ShapeMismatch(text) if text.contains("float32[3]")), "{unlike}");
    let count = ended(&all[1], reduce(&all[1], 5, &[2], 2, Mode::Whole)).unwrap_err().to_string();
    assert!(count.contains("the first 2 of 1 sources"), "{count}");
    let again = all[0].put(ObjectId(2), (DType::F32, &[1][..]), &[&[0; 4]], PATIENCE, &|| false).unwrap_err();
    assert!(again.to_string().contains("here already"));
    let full =
        all[0].create(ObjectId(6), (DType::U8, &[64 << 20][..]), Duration::ZERO, &|| false).unwrap_err();
    assert!(full.to_string().contains("with 8"), "{full}");
    all[1].delete(ObjectId(2)).unwrap();
    let deleted = ended(&all[1], get(&all[1], 2)).unwrap_err().to_string();
    assert!(deleted.contains("was deleted"), "{deleted}");
    let stranger = Objects::open(options(Some("quite another secret"))).unwrap();
    let refused = stranger.meet(&[all[0].descriptor().to_vec()], &|| false).unwrap_err().to_string();
    assert!(refused.contains("secret"), "{refused}");
}

/// Where a file that is mapped came from; none: memory of this process alone.
fn file_of(finished: &Finished) -> Option<String> {
    let address = finished.memory.address() as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let holds = |line: &&str| {
        let (begin, rest) = line.split_once('-').unwrap();
        let ends = [begin, rest.split(' ').next().unwrap()];
        let [begin, end] = ends.map(|end| usize::from_str_radix(end, 16).unwrap());
        begin <= address && address < end
    };
    let name = maps.lines().find(holds).and_then(|line| line.split("/memfd:").nth(1));
    name.map(str::to_owned)
}

fn used(all: &[Objects]) -> Vec<u64> {
    all.iter().map(|at| at.room().0 >> 20).collect()
}

#[test]
fn neighbours_read_one_memory_which_stays_when_its_maker_is_gone() {
    let mut all = processes(4);
    let right: Vec<f32> = (0..LARGE).map(|i| i as f32).collect();
    put(&all[0], 1, &right);
    // Copies feed others, too: whoever has mapped it passes that on.
    let copies: Vec<Finished> = all.iter().map(|at| ended(at, get(at, 1)).unwrap()).collect();
    let file = file_of(&copies[0]);
    assert!(file.is_some() && copies.iter().all(|copy| file_of(copy) == file));
    assert_eq!(used(&all), [4; 4], "it counts at each, as the last of them frees it");
    all[0].delete(ObjectId(1)).unwrap();
    put(&all[0], 2, &vec![0.0; LARGE]); // what was let go of may be taken again
    drop(all.remove(0));
    assert!(copies.iter().all(|copy| values(copy) == right));
}

#[test]
fn what_is_mapped_fills_the_store_of_who_reads_it() {
    let mut all = processes(1);
    all.push(Objects::open(ObjectsOptions { most_bytes: 6 << 20, ..options(None) }).unwrap());
    meet(&all[1], &all);
    (1..3).for_each(|id| put(&all[0], id, &vec![id as f32; LARGE]));
    let first = ended(&all[1], get(&all[1], 1)).unwrap();
    let second = all[1].get(ObjectId(2), Some(Duration::from_millis(50))).unwrap();
    let why = ended(&all[1], second).unwrap_err().to_string();
    assert!(why.contains("of the store's 6291456 bytes 1 objects take 4194304"), "{why}");
    let second = get(&all[1], 2);
    drop(first);
    all[0].delete(ObjectId(1)).unwrap();
    assert_eq!(values(&ended(&all[1], second).unwrap()), vec![2.0; LARGE]);
    assert_eq!(used(&all), [4, 4]);
}

#[test]
fn a_neighbour_reads_behind_the_mark_while_the_rest_is_written() {
    let all = processes(2);
    let kind = (DType::F32, &[4 * LARGE as u64][..]);
    let memory = all[0].create(ObjectId(1), kind, PATIENCE, &|| false).unwrap();
    let call = get(&all[1], 1);
    let (mut seen, half) = (None, 8 << 20);
    for begin in [0, half] {
        // SAFETY: beyond the mark, and nobody else writes it.
        unsafe { memory.address().add(begin).write_bytes(1, half) };
        all[0].advance(ObjectId(1), (begin + half) as u64).unwrap();
        let mut mark = begin as u64;
        while mark <= begin as u64 {
            let (found, at) = all[1].mark(ObjectId(1), mark, PATIENCE).unwrap().unwrap();
            assert!(at <= (begin + half) as u64, "no byte beyond the writer's mark");
            // SAFETY: behind the mark.
            let last = unsafe { found.memory.address().add(at as usize - 1).read() };
            assert_eq!((*seen.get_or_insert(found.memory.address()), last), (found.memory.address(), 1));
            mark = at;
        }
    }
    assert!(values(&ended(&all[1], call).unwrap()).iter().all(|&value| value == f32::from_le_bytes([1; 4])));
}

#[test]
fn a_copy_whose_maker_is_gone_goes_on_in_memory_of_its_own() {
    let mut all = processes(3);
    let (size, half) = (4 * LARGE, 2 * LARGE + 5);
    let kind = (DType::U8, &[size as u64][..]);
    let memory = all[0].create(ObjectId(1), kind, PATIENCE, &|| false).unwrap();
    // SAFETY: nobody else has it.
    unsafe { memory.address().write_bytes(9, size) }; // what is beyond the mark is nobody's to read
                                                      // SAFETY: as above.
    unsafe { memory.address().write_bytes(1, half) };
    let call = get(&all[1], 1);
    all[0].advance(ObjectId(1), half as u64).unwrap();
    let (seen, mark) = all[1].mark(ObjectId(1), 0, PATIENCE).unwrap().unwrap();
    assert!(file_of(&seen).is_some() && 0 < mark && mark <= half as u64);
    drop((all.remove(0), memory));
    let whole: Vec<u8> = (0..size).map(|at| if at < half { 1 } else { 2 }).collect();
    all[1].put(ObjectId(1), kind, &[&whole], PATIENCE, &|| false).unwrap();
    let copy = ended(&all[0], call).unwrap();
    // SAFETY: all of it is there, and nobody writes it any more.
    let bytes = unsafe { std::slice::from_raw_parts(copy.memory.address(), size) };
    assert!(bytes == whole);
    // It is no file any more that could be passed on, and others get what is right.
    let others: Vec<Finished> = all.iter().map(|at| ended(at, get(at, 1)).unwrap()).collect();
    // SAFETY: as above.
    let right = |of: &Finished| unsafe { std::slice::from_raw_parts(of.memory.address(), size) } == whole;
    assert!(others.iter().all(right));
}

#[test]
fn whoever_shares_no_memory_gets_blocks() {
    let mut all = processes(1);
    all.push(Objects::open(ObjectsOptions { wire_only: true, ..options(None) }).unwrap());
    meet(&all[1], &all);
    put(&all[0], 1, &vec![1.5; LARGE]);
    let copy = ended(&all[1], get(&all[1], 1)).unwrap();
    assert_eq!((values(&copy), file_of(&copy)), (vec![1.5; LARGE], None));
}
