// The engine's table of C functions: all that the torch backend knows of tweed.
// The mirror of crates/net/src/ctable.rs. It knows no torch types, so one engine serves every torch version.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define TWEED_ABI 1u

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  TWEED_ALL_REDUCE = 0,
  TWEED_REDUCE_SCATTER = 1,
  TWEED_ALL_GATHER = 2,
  TWEED_BROADCAST = 3,
  TWEED_REDUCE = 4,
  TWEED_GATHER = 5,
  TWEED_SCATTER = 6,
  TWEED_ALL_TO_ALL = 7,
  TWEED_SEND = 8,   // peer, tag; one input segment
  TWEED_RECV = 9,   // peer (UINT32_MAX: any source), tag; one output segment
  TWEED_BARRIER = 10,
} tweed_operation;

typedef enum {
  TWEED_F16 = 0, TWEED_BF16 = 1, TWEED_F32 = 2, TWEED_F64 = 3,
  TWEED_I8 = 4, TWEED_I16 = 5, TWEED_I32 = 6, TWEED_I64 = 7,
  TWEED_U8 = 8, TWEED_U16 = 9, TWEED_U32 = 10, TWEED_U64 = 11,
  TWEED_BOOL = 12,
  TWEED_BYTES = 13,  // opaque bytes: moved, never reduced
} tweed_dtype;

typedef enum {
  TWEED_SUM = 0, TWEED_AVG = 1, TWEED_PROD = 2, TWEED_MIN = 3, TWEED_MAX = 4,
  TWEED_BAND = 5, TWEED_BOR = 6, TWEED_BXOR = 7, TWEED_PREMUL_SUM = 8,
} tweed_reduce_op;  // the numbers of c10d::ReduceOp

// How an operation ended. The names are those of python/tweed/errors.py.
typedef enum {
  TWEED_OK = 0,
  TWEED_PENDING = 1,      // only from test() and from wait() whose slice of time ran out
  TWEED_USAGE = 2,
  TWEED_SHAPE_MISMATCH = 3,
  TWEED_PEER_LOST = 4,
  TWEED_DEADLINE = 5,
  TWEED_ABORTED = 6,
  TWEED_FORKED = 7,
} tweed_status;

typedef struct {
  void* data;
  uint64_t bytes;
} tweed_segment;

// What each operation expects as segments (N ranks):
//   all_reduce, broadcast, barrier   1 input, the same 1 output (in place); barrier: none
//   reduce                           1 input; output the same segment on the root, none elsewhere
//   all_gather                       1 input, N outputs          gather: outputs on the root only
//   reduce_scatter                   N inputs, 1 output          scatter: inputs on the root only
//   all_to_all                       N inputs, N outputs, of any sizes
//   send / recv                      1 input / 1 output
// Inputs that are not also outputs are never written. An input that shares memory with an output is read first: the
// engine copies it, but for the part that a rank keeps, which may be in place. Memory must stay valid until the operation
// has ended.
typedef struct {
  uint32_t operation;  // tweed_operation
  uint32_t dtype;      // tweed_dtype
  uint32_t reduce_op;  // tweed_reduce_op
  uint32_t root;       // root of rooted collectives; peer of send and recv
  uint64_t tag;        // send and recv
  int32_t urgency;     // where no memory of the call is named: more of it leaves first
  uint32_t blocking;   // 1: the caller waits at once, so nobody else need be woken
  double factor;       // PREMUL_SUM: what each contribution is multiplied with first
  int64_t timeout_ms;  // negative: the group's
  const tweed_segment* inputs;
  size_t n_inputs;
  const tweed_segment* outputs;
  size_t n_outputs;
  const char* shape;   // for error texts, such as "[64, 3, 3, 3]"; may be null
} tweed_request;

typedef struct tweed_group tweed_group;
typedef struct tweed_op tweed_op;

// Called once, from an engine thread that holds no engine lock, when the operation has ended.
typedef void (*tweed_callback)(void* context);

typedef struct {
  uint32_t abi;  // TWEED_ABI

  // A new reference to a group, and its release.
  tweed_group* (*group_retain)(tweed_group*);
  void (*group_release)(tweed_group*);

  // Starts an operation; the segments array itself is copied. Never null: errors are the op's status.
  tweed_op* (*submit)(tweed_group*, const tweed_request*);
  // Waits at most wait_ms (negative: for ever); TWEED_PENDING when that ran out or a signal came in.
  tweed_status (*wait)(tweed_op*, int64_t wait_ms);
  tweed_status (*test)(tweed_op*);
  // `callback(context)` once it has ended; at once, on this thread, if it has. At most one per op.
  void (*on_end)(tweed_op*, tweed_callback callback, void* context);
  // The error's text, valid until release; "" when there is none.
  const char* (*message)(tweed_op*);
  // recv: who sent it (after OK).
  uint32_t (*source)(tweed_op*);
  void (*release)(tweed_op*);

  // Ends every pending operation with TWEED_ABORTED and tells the other ranks.
  void (*abort)(tweed_group*, const char* reason);

  // Memory that peers on this host read and write in place; null if there is none left. 64-byte aligned or better.
  void* (*alloc)(tweed_group*, uint64_t bytes);
  void (*free)(tweed_group*, void*);
} tweed_table;

#ifdef __cplusplus
}
#endif
