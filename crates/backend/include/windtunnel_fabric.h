/*
 * A network of your own under Windtunnel's jobs.
 *
 * A shared library that exports `wt_fabric_backend` stands in for the packet model: it is told of every message that
 * leaves a NIC for another scale-up domain, and says when it arrives. Computation, collectives, streams, NIC clocks, the
 * matching of receives, and traffic inside scale-up domains stay Windtunnel's. A scenario names the library:
 *
 *   fidelity: packet
 *   network: {backend: {library: ./libmine.so, parameters: {anything: 1}}}
 *
 * One model lives from `open` to `close` and is used by one thread; several may live at once, so keep no globals. Time is
 * picoseconds from the start, and never goes back:
 *
 *   model = open(setup, ...)
 *   repeat
 *     depart(model, at, message)      at: not before any instant advanced to
 *     t = next_time(model)            not before any instant advanced to, nor before `at`
 *     n = advance(model, t, ...)      only ever with the t that next_time has just said
 *   close(model)
 *
 * Every function is required. Functions must not unwind (no C++ exception may leave them).
 */
#ifndef WINDTUNNEL_FABRIC_H
#define WINDTUNNEL_FABRIC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; a library of another version is refused. */
#define WT_FABRIC_ABI 1

/* What next_time says when nothing is under way. */
#define WT_FABRIC_NEVER UINT64_MAX

/* A directed link of the scenario's topology. */
typedef struct {
  uint64_t rate_bps;
  uint64_t latency_ps; /* propagation, and the pipeline delay of the switch at the far end */
  double loss;         /* share of packets lost at random, 0 to 1 */
} wt_fabric_link;

/* The fabric as the scenario describes it. Valid until `close` has returned. */
typedef struct wt_fabric_setup {
  uint64_t seed;
  uint64_t mtu_bytes;    /* largest packet, its header included */
  uint64_t header_bytes; /* of each packet */
  uint32_t endpoints;    /* GPUs, host by host */
  uint32_t endpoints_per_host;
  uint32_t nics; /* of all hosts, host by host */
  uint32_t link_count;
  const wt_fabric_link *links; /* by number */
  const char *parameters;      /* `network.backend.parameters` as JSON */
  /*
   * The links of a message's path, from NIC to NIC, by the scenario's topology and a hash of (seed, NICs, entropy):
   * writes up to `capacity` numbers and returns how many there are, or -1 for numbers out of range.
   */
  int32_t (*route)(const struct wt_fabric_setup *setup, uint32_t from, uint32_t to, uint32_t nic, uint32_t entropy,
                   uint32_t *links, uint32_t capacity);
} wt_fabric_setup;

/* A message that leaves its NIC. */
typedef struct {
  uint64_t bytes;    /* payload, at least 1 */
  uint32_t message;  /* its name; used again once it has arrived */
  uint32_t from;     /* GPU */
  uint32_t to;       /* GPU in another scale-up domain */
  uint32_t nic;      /* which of the NICs of the sender's GPU; the receiver's of the same number takes it */
  uint32_t entropy;  /* what a load balancer hashes */
  uint8_t class_;    /* traffic class: the parallel dimension it belongs to */
  uint8_t ordered;   /* 1: sent on a connection after the messages of equal sender, receiver and entropy; 0: alone */
} wt_fabric_message;

typedef struct {
  /* WT_FABRIC_ABI. */
  uint32_t abi;
  /* Name of the model, for the list of what a result rests on. */
  const char *name;
  /* A model, or NULL with a message in `error` (at most `size` bytes with the final zero). */
  void *(*open)(const wt_fabric_setup *setup, char *error, size_t size);
  /* A message departs at `at`. 0, or -1 if the model fails. */
  int32_t (*depart)(void *model, uint64_t at, const wt_fabric_message *message);
  /* When something happens next, WT_FABRIC_NEVER if nothing will. */
  uint64_t (*next_time)(void *model);
  /*
   * Advances to `to`; writes the names of up to `capacity` messages that arrive now, returns how many. If that is
   * `capacity`, it is called again with the same `to` for the rest. -1 if the model fails.
   */
  int32_t (*advance)(void *model, uint64_t to, uint32_t *arrived, uint32_t capacity);
  /* Why depart or advance said -1. Valid until the next call. */
  const char *(*failure)(void *model);
  /* Frees the model. */
  void (*close)(void *model);
} wt_fabric_table;

/* What the library exports. The table lives as long as the library. */
const wt_fabric_table *wt_fabric_backend(void);

#ifdef __cplusplus
}
#endif

#endif
