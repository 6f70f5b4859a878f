/*
 * A network of one's own: every GPU sends at a fixed rate, and what it sent arrives a fixed latency later. Nothing else
 * is shared. The scenario beside this file runs on it:
 *
 *   cc -shared -fPIC -O2 -I crates/backend/include -o examples/own-network/libnetwork.so examples/own-network/network.c
 *   windtunnel run examples/own-network/scenario.yaml --allow-native
 */
#include "windtunnel_fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message under way, in a list sorted by arrival; those of one instant in the order of their departure. */
typedef struct flight {
  uint64_t arrival;
  uint32_t message;
  struct flight *next;
} flight;

typedef struct {
  uint64_t ps_per_byte, latency_ps, mtu, header;
  uint64_t *free_at; /* when each GPU may send again */
  flight *first;
  const char *failure;
} model;

/* The number of a key in the parameters' JSON, or 0. */
static uint64_t parameter(const char *json, const char *key) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  const char *at = strstr(json, quoted);
  return at ? strtoull(at + strlen(quoted), NULL, 10) : 0;
}

static void *open_model(const wt_fabric_setup *setup, char *error, size_t size) {
  model *m = calloc(1, sizeof *m);
  m->ps_per_byte = parameter(setup->parameters, "ps_per_byte");
  m->latency_ps = 1000 * parameter(setup->parameters, "latency_ns");
  m->mtu = setup->mtu_bytes;
  m->header = setup->header_bytes;
  m->free_at = calloc(setup->endpoints, sizeof *m->free_at);
  if (m->ps_per_byte == 0) {
    snprintf(error, size, "`ps_per_byte` is missing or 0");
    free(m->free_at);
    free(m);
    return NULL;
  }
  return m;
}

static int32_t depart(void *self, uint64_t at, const wt_fabric_message *message) {
  model *m = self;
  uint64_t payload = m->mtu - m->header;
  uint64_t wire = message->bytes + m->header * ((message->bytes + payload - 1) / payload);
  uint64_t start = at > m->free_at[message->from] ? at : m->free_at[message->from];
  m->free_at[message->from] = start + wire * m->ps_per_byte;

  flight *new = malloc(sizeof *new);
  if (!new) {
    m->failure = "out of memory";
    return -1;
  }
  new->arrival = m->free_at[message->from] + m->latency_ps;
  new->message = message->message;
  flight **place = &m->first;
  while (*place && (*place)->arrival <= new->arrival) place = &(*place)->next;
  new->next = *place;
  *place = new;
  return 0;
}

static uint64_t next_time(void *self) {
  model *m = self;
  return m->first ? m->first->arrival : WT_FABRIC_NEVER;
}

static int32_t advance(void *self, uint64_t to, uint32_t *arrived, uint32_t capacity) {
  model *m = self;
  uint32_t count = 0;
  while (count < capacity && m->first && m->first->arrival <= to) {
    flight *gone = m->first;
    arrived[count++] = gone->message;
    m->first = gone->next;
    free(gone);
  }
  return (int32_t)count;
}

static const char *failure(void *self) { return ((model *)self)->failure; }

static void close_model(void *self) {
  model *m = self;
  for (flight *gone; (gone = m->first); free(gone)) m->first = gone->next;
  free(m->free_at);
  free(m);
}

const wt_fabric_table *wt_fabric_backend(void) {
  static const wt_fabric_table table = {
      WT_FABRIC_ABI, "rate and latency", open_model, depart, next_time, advance, failure, close_model,
  };
  return &table;
}
