package ledger

import (
	"math/bits"
	"sync"
)

// move is one row of the transition table: in these states, the event leads there.
type move struct {
	event   EventKind
	from    phases
	in      ops
	to      Phase // samePhase, or PhaseNone for a row that goes away
	op      Op    // sameOp, or the operation that follows
	lease   leaseRule
	guards  guards
	effects effects
}

const (
	samePhase Phase = "same"
	sameOp    Op    = "same"
	rowGone         = PhaseNone
)

// leaseRule says what an event needs, or does, of the lease.
type leaseRule int

const (
	noLease      leaseRule = iota
	mints                  // starts an operation under a new lease; not on a tombstoned row, kill and drop excepted
	needsNonce             // the sender holds the lease
	needsAttempt           // the sender's environment names the attempt
	needsEither
	takesOver // the lease gets a new nonce and a new owner
)

// transitions is the whole of what can happen to a row. Where two moves of one event fit, the
// first counts; what fits none is illegal. docs/state.md shows it with the meaning of
// every guard and effect.
var transitions = []move{
	// a row is born
	{EventEnrol, fromNoRow, inNone, PhaseLive, OpNone, noLease, subjectRuns | unclaimed, bindProcess | setLocation},
	{EventBeginCreate, fromNoRow, inNone, PhaseLive, OpCreate, mints, 0, 0},
	{EventBind, fromLive, inCreate, PhaseLive, OpNone, needsEither, byAttempt | subjectRuns | unclaimed, bindProcess | setLocation | forgetEnd},
	{EventBind, fromLive, inNone, PhaseLive, OpNone, noLease, rebindable, bindProcess | setLocation},
	{EventRemoveBirth, fromLive, inCreate, rowGone, OpNone, needsNonce, neverRan | carriersGone, 0},
	{EventCreateUnknown, fromLive, inCreate, PhaseLive, OpNone, needsNonce, 0, askAttention},

	// freeze
	{EventBeginFreeze, fromLive, inNone, PhaseLive, OpFreeze, mints, recordedRuns, openCapture},
	{EventCommitFreeze, fromLive, inFreeze, PhaseFrozen, OpNone, needsNonce, captured | recordedGone, closeCapture | setStandIn | forgetEnd},
	{EventAbortFreeze, fromLive, inFreeze, PhaseLive, OpNone, needsNonce, uncommitted, dropCapture},

	// restore
	{EventBeginRestore, fromFrozen, inNone, PhaseFrozen, OpRestore, mints, restorable | conversationFree, openRestore},
	{EventLaunched, fromFrozen, inRestore, PhaseFrozen, OpRestore, needsNonce, 0, setLaunched | setLocation},
	{EventAcknowledge, fromFrozen, inRestore, PhaseLive, OpNone, needsAttempt, launchedIt | subjectRuns | sameConversation,
		bindProcess | setLocation | adoptID | ackByHook | dropCapture | forgetEnd},
	{EventConfirmRestore, fromFrozen, inRestore, PhaseLive, OpNone, needsNonce, confirmable | subjectRuns,
		bindProcess | ackByLiveness | keepCapture | forgetEnd},
	{EventFailRestore, fromFrozen, inRestore, PhaseFrozen, OpAbort, needsNonce, 0, failRestore},
	{EventStandInReady, fromFrozen, inAbort, PhaseFrozen, OpNone, needsNonce, attemptGone, setStandIn | forgetEnd},
	{EventAdopt, fromFrozen, inNone, PhaseLive, OpNone, noLease, subjectRuns | carriesRow | unclaimed | rowConversation,
		bindProcess | setLocation | keepCapture | forgetEnd},
	{EventBeginStandIn, fromFrozen, inNone, PhaseFrozen, OpStandIn, mints, 0, 0},
	{EventEndStandIn, fromFrozen, inStandIn, PhaseFrozen, OpNone, needsNonce, 0, setStandIn},

	// another process for the same session
	{EventBeginHandoff, fromLive, inNone, PhaseLive, OpHandoff, mints, otherRuntime, setTarget},
	{EventCommitHandoff, fromLive, inHandoff, PhaseLive, OpNone, needsNonce, recordedGone | carriesAttempt | subjectRuns | idFree,
		newLife | bindProcess | setLocation | clearLimit | forgetEnd},
	{EventParkHandoff, fromLive, inHandoff, PhaseLive, OpNone, needsNonce, recordedGone | carriesAttempt | subjectRuns | idFree,
		newLife | bindProcess | setLocation | clearLimit | setLimit | forgetEnd},
	{EventAbortHandoff, fromLive, inHandoff, PhaseLive, OpNone, needsNonce, 0, clearTarget | forgetEnd},
	{EventBeginRespawn, fromLive, inNone, PhaseLive, OpRespawn, mints, recordedGone | notRescued, 0},
	{EventCommitRespawn, fromLive, inRespawn, PhaseLive, OpNone, needsNonce, carriesAttempt | subjectRuns,
		bindProcess | setLocation | clearLimit | forgetEnd},
	{EventAbortRespawn, fromLive, inRespawn, PhaseLive, OpNone, needsNonce, 0, 0},

	// what is observed
	{EventClaim, fromLive, inNone | inCreate, samePhase, sameOp, noLease, namesProcess | claimable, adoptID},
	{EventClaim, fromAny, inAny, samePhase, sameOp, noLease, 0, yields},
	{EventObserveLimit, fromLive, inNone, PhaseLive, OpNone, noLease, namesProcess, setLimit},
	{EventObserveLimit, fromAny, inAny, samePhase, sameOp, noLease, 0, yields},
	{EventClearLimit, fromLive, inNone, PhaseLive, OpNone, noLease, 0, clearLimit},
	{EventClearLimit, fromAny, inAny, samePhase, sameOp, noLease, 0, yields},

	// the end
	{EventIntendKill, fromUnfinished, inAny, samePhase, sameOp, noLease, 0, setTombstone},
	{EventWithdrawKill, fromUnfinished, inNone, samePhase, OpNone, noLease, 0, clearTombstone},
	{EventBeginKill, fromUnfinished, inNone, samePhase, OpKill, mints, 0, 0},
	{EventCommitKill, fromUnfinished, inKill, PhaseFinished, OpNone, needsNonce, sessionGone, setFinish | forgetEnd},
	{EventAbortKill, fromUnfinished, inKill, samePhase, OpNone, needsNonce, 0, forgetEnd},
	{EventFinish, fromLive, inNone | inCreate, PhaseFinished, OpNone, noLease, namesProcess, setFinish | forgetEnd},
	{EventFinish, fromLive | fromFrozen, inAny, samePhase, sameOp, noLease, 0, yields | noteEnd},
	{EventFinish, fromAny, inAny, samePhase, sameOp, noLease, 0, yields},
	{EventBeginDrop, fromAny, inNone, samePhase, OpDrop, mints, sessionGone, 0},
	{EventCommitDrop, fromAny, inDrop, rowGone, OpNone, needsNonce, sessionGone, 0},
	{EventAbortDrop, fromAny, inDrop, samePhase, OpNone, needsNonce, 0, 0},

	// the lease itself
	{EventRelease, fromAny, inFlight, samePhase, sameOp, needsNonce, 0, giveBack},
	{EventTakeOver, fromAny, inFlight, samePhase, sameOp, takesOver, staleLease, 0},
	{EventForceTakeOver, fromAny, inFlight, samePhase, sameOp, takesOver, 0, 0},
}

// phases is a set of phases, ops one of operations.
type (
	phases uint8
	ops    uint16
)

const (
	fromNoRow phases = 1 << iota
	fromLive
	fromFrozen
	fromArchived
	fromFinished

	fromUnfinished = fromLive | fromFrozen | fromArchived
	fromAny        = fromUnfinished | fromFinished
)

const (
	inNone ops = 1 << iota
	inCreate
	inFreeze
	inRestore
	inAbort
	inStandIn
	inHandoff
	inRespawn
	inKill
	inDrop

	inFlight = inCreate | inFreeze | inRestore | inAbort | inStandIn | inHandoff | inRespawn | inKill | inDrop
	inAny    = inNone | inFlight
)

func (p Phase) bit() phases {
	switch p {
	case PhaseNone:
		return fromNoRow
	case PhaseLive:
		return fromLive
	case PhaseFrozen:
		return fromFrozen
	case PhaseArchived:
		return fromArchived
	case PhaseFinished:
		return fromFinished
	}
	return 0 // of a row that a stranger wrote: nothing is legal
}

func (o Op) bit() ops {
	switch o {
	case OpNone:
		return inNone
	case OpCreate:
		return inCreate
	case OpFreeze:
		return inFreeze
	case OpRestore:
		return inRestore
	case OpAbort:
		return inAbort
	case OpStandIn:
		return inStandIn
	case OpHandoff:
		return inHandoff
	case OpRespawn:
		return inRespawn
	case OpKill:
		return inKill
	case OpDrop:
		return inDrop
	}
	return 0
}

// tableIndex has, for each event, its moves in the order of the table, so that a look-up
// passes three of them at most, and the facts that their guards consult. It is made when it
// is first asked: most hooks need none of it.
type tableIndex struct {
	moves [eventCount][]*move
	facts [eventCount]facts
}

var indexed = sync.OnceValue(func() *tableIndex {
	var index tableIndex
	for i := range transitions {
		m := &transitions[i]
		index.moves[m.event] = append(index.moves[m.event], m)
		for g := m.guards; g != 0; g &= g - 1 {
			index.facts[m.event] |= guardTexts[bits.TrailingZeros32(uint32(g))].facts
		}
	}
	return &index
})

func lookUpMove(kind EventKind, phase Phase, op Op) *move {
	p, o := phase.bit(), op.bit()
	for _, m := range indexed().moves[kind] {
		if m.from&p != 0 && m.in&o != 0 {
			return m
		}
	}
	return nil
}
