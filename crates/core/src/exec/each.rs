// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several futures of one task at a time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Runs futures together; their results, in order.
pub async fn each<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut open: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = open.iter().map(|_| None).collect();
    poll_fn(move |context| {
        for (future, result) in open.iter_mut().zip(&mut done) {
            if result.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(context)
            {
                *result = Some(output);
            }
        }
        if done.iter().any(Option::is_none) {
            return Poll::Pending;
        }
        Poll::Ready(done.iter_mut().filter_map(Option::take).collect())
    })
    .await
}
