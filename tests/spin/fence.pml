/* Who serves a job, and whom its agents obey (docs/PROTOCOL.md, R1 and R10): two services that each want to serve, and two agents.
 *
 * The record is one number, the last decision. An agent must never obey a decision that is in no record, nor go back to an older one,
 * nor obey one of two services that decided differently. A service may stand still between any two of its steps, for as long as it
 * likes, and not know it (SIGSTOP, a page fault, its hypervisor): the scheduler does that.
 *
 * With FILE the record is a file. Its lock goes with the process: who is stopped keeps it, who has died hasn't got it.
 * Else it is in a store that many can write to, as etcd: a leader's key ends with its lease, whatever its holder believes; the key's
 * create revision is the service's term, and each write asks whether the key is still there and has it.
 *
 * Each of these leaves a part of the fence out; fence_test.py has it found:
 *   NO_LOCK      a service begins without the lock
 *   NO_GUARD     a write doesn't ask
 *   NO_TERM      agents obey any term
 *   TELL_FIRST   agents hear a decision before it is in the record
 */
#define SERVICES 2
#define AGENTS 2
#define DECISIONS 3

byte record = 0;  /* the last decision, and who made it */
byte author[DECISIONS + 1];
byte leader = 0;  /* 0 = nobody has the lock, or key; else 1 + the service's number */
byte revision = 0;
byte begun = 0;   /* how often one began to serve: bounds the search */

byte obeyed[AGENTS];
byte obeyed_term[AGENTS];

#define MAY_WRITE (leader == me + 1 && revision == term)

/* All agents that it reaches hear it: each, or not. */
inline Notify() {
  agent = 0;
  do
  :: agent < AGENTS ->
     if
     :: skip  /* it doesn't arrive */
#ifndef NO_TERM
     :: term >= obeyed_term[agent] ->
#else
     :: true ->
#endif
        assert(known <= record);            /* no decision without a record */
        assert(known >= obeyed[agent]);     /* nobody goes back */
        assert(author[known] == author_known);  /* and it is the one of the record */
        obeyed[agent] = known;
        obeyed_term[agent] = term
     fi;
     agent++
  :: else -> break
  od;
  agent = 0
}

inline Write() {
  record = known;
  author[known] = 1 + me;
  author_known = 1 + me
}

active [SERVICES] proctype Service() {
  byte me = _pid;
  byte term = 0;
  byte known = 0;         /* the last decision that it knows of */
  byte author_known = 0;  /* and whose it was */
  byte agent = 0;

idle:
  atomic {
#ifdef NO_LOCK
    begun < 3 ->
#else
    begun < 3 && leader == 0 ->
#endif
    begun++;
    leader = me + 1;
#ifndef FILE
    revision++;
#endif
    term = revision;
    known = record;
    author_known = author[record]
  }
serving:
  do
  :: atomic { Notify() }  /* what is current: an agent has come back */
  :: known < DECISIONS ->
     known++;
#ifdef TELL_FIRST
     author_known = 1 + me;
     atomic { Notify() }
#endif
     if
#if defined(FILE) || defined(NO_GUARD)
     :: atomic { Write() }
#else
     :: atomic { MAY_WRITE -> Write() }
     :: atomic { !MAY_WRITE -> goto idle }  /* it was refused: another one serves */
#endif
     fi;
     atomic { Notify() }
  :: atomic {  /* it dies */
       if
       :: leader == me + 1 -> leader = 0
       :: else -> skip
       fi;
       known = 0;
       goto idle
     }
  od
}

#ifndef FILE
/* Its lease ends, and it doesn't know. */
active proctype Lease() {
  do
  :: atomic { leader != 0 && begun < 3 -> leader = 0 }
  od
}
#endif
