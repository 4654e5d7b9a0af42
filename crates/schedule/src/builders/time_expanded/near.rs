//! Neighbourhoods: nodes that reach each other over fast links.

/// The number of each node's strongly connected component, from 0 (Kosaraju's algorithm).
pub(super) fn components(
    nodes: usize,
    ahead: &impl Fn(usize) -> Vec<usize>,
    back: &impl Fn(usize) -> Vec<usize>,
) -> Vec<u32> {
    let (mut seen, mut order) = (vec![false; nodes], Vec::with_capacity(nodes));
    for start in 0..nodes {
        leave_in_order(start, ahead, &mut seen, &mut order);
    }
    let mut component = vec![u32::MAX; nodes];
    let mut number = 0;
    for &start in order.iter().rev() {
        if component[start] != u32::MAX {
            continue;
        }
        let mut path = vec![start];
        while let Some(node) = path.pop() {
            if component[node] == u32::MAX {
                component[node] = number;
                path.extend(back(node));
            }
        }
        number += 1;
    }
    component
}

/// Depth first: appends each node that is reached when all beyond it have been.
fn leave_in_order(
    start: usize,
    ahead: &impl Fn(usize) -> Vec<usize>,
    seen: &mut [bool],
    order: &mut Vec<usize>,
) {
    if std::mem::replace(&mut seen[start], true) {
        return;
    }
    let mut path = vec![(start, ahead(start))];
    while let Some((node, next)) = path.last_mut() {
        match next.pop() {
            Some(next) if !std::mem::replace(&mut seen[next], true) => path.push((next, ahead(next))),
            Some(_) => {}
            None => {
                order.push(*node);
                path.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_one_way_link_joins_nothing() {
        let links = [(0, 1), (1, 0), (1, 2), (2, 3), (3, 2), (4, 3)];
        let ahead = |node| links.iter().filter(|(a, _)| *a == node).map(|&(_, b)| b).collect();
        let back = |node| links.iter().filter(|(_, b)| *b == node).map(|&(a, _)| a).collect();
        let of = components(5, &ahead, &back);
        assert!(of[0] == of[1] && of[2] == of[3]);
        assert!(of[1] != of[2] && of[3] != of[4] && of[0] != of[4]);
        assert_eq!(of.iter().max(), Some(&2));
    }
}
