/* A network without rates, wrong in the way that a definition asks for; without one it is right. */
#include "windtunnel_fabric.h"

#include <stdlib.h>

#ifndef ABI
#define ABI WT_FABRIC_ABI
#endif

enum { MOST = 4096 };

typedef struct {
  uint64_t latency[MOST], arrival[MOST];
  uint32_t message[MOST];
  uint32_t count;
  const wt_fabric_setup *setup;
  uint64_t now;
} model;

static void *open_model(const wt_fabric_setup *setup, char *error, size_t size) {
  (void)error, (void)size;
  model *m = calloc(1, sizeof *m);
  m->setup = setup;
  return m;
}

static int32_t depart(void *self, uint64_t at, const wt_fabric_message *message) {
  model *m = self;
  uint32_t links[16];
  int32_t hops = m->setup->route(m->setup, message->from, message->to, message->nic, message->entropy, links, 16);
  /* One leaf: up and down. Beyond the last GPU there is no way. */
  if (hops != 2 || m->setup->links[links[0]].rate_bps != 400000000000u) return -1;
  if (m->setup->route(m->setup, m->setup->endpoints, 0, 0, 0, links, 16) != -1) return -1;
  uint64_t latency = m->setup->links[links[0]].latency_ps + m->setup->links[links[1]].latency_ps;
  m->arrival[m->count] = at + latency;
  m->message[m->count++] = message->message;
  return 0;
}

static uint64_t next_time(void *self) {
  model *m = self;
  uint64_t next = WT_FABRIC_NEVER;
  for (uint32_t i = 0; i < m->count; i++)
    if (m->arrival[i] < next) next = m->arrival[i];
#ifdef NEVER
  return WT_FABRIC_NEVER;
#endif
#ifdef BACK
  if (m->now > 0) return 1;
#endif
#ifdef STANDS
  if (m->now > 0) return m->now;
#endif
  return next;
}

static int32_t advance(void *self, uint64_t to, uint32_t *arrived, uint32_t capacity) {
  model *m = self;
  uint32_t count = 0;
#ifdef STANDS
  if (m->now > 0) return 0;
#endif
  m->now = to;
  for (uint32_t i = 0; i < m->count && count < capacity;) {
    if (m->arrival[i] > to) {
      i++;
      continue;
    }
    arrived[count++] = m->message[i];
    m->count--;
    for (uint32_t j = i; j < m->count; j++) {
      m->arrival[j] = m->arrival[j + 1];
      m->message[j] = m->message[j + 1];
    }
  }
#ifdef INVENTS
  arrived[0] = UINT32_MAX;
#endif
#ifdef TWICE
  arrived[1] = arrived[0];
  count = 2;
#endif
#ifdef TOO_MANY
  return 100000;
#endif
#ifdef FAILS
  return -1;
#endif
  return (int32_t)count;
}

static const char *failure(void *self) {
  (void)self;
  return "it wants to";
}

static void close_model(void *self) { free(self); }

const wt_fabric_table *wt_fabric_backend(void) {
  (void)advance;
  static const wt_fabric_table table = {
      ABI, "contrary", open_model, depart, next_time,
#ifdef HOLE
      NULL,
#else
      advance,
#endif
      failure, close_model,
  };
  return &table;
}
