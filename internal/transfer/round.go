package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/transfer/swarm"
)

// round brings pieces until all are here. One goroutine decides, by its state; others carry requests out, and hand back
// what that one does next.
type round struct {
	*transfer
	x       *Indexed
	part    *partial
	ctx     context.Context
	state   *swarm.Swarm
	events  chan func()
	running int // goroutines that will send one last event
	fatal   error
	noted   time.Time
}

func (r *round) loop() error {
	look, locate := time.NewTimer(0), time.NewTimer(0)
	defer look.Stop()
	defer locate.Stop()
	for r.state.Left() > 0 {
		now := time.Now()
		for r.fatal == nil {
			ask, ok := r.state.Next(now)
			if !ok {
				break
			}
			r.start(ask)
		}
		wake := time.NewTimer(max(r.state.Wake(now).Sub(now), time.Millisecond))
		select {
		case e := <-r.events:
			e()
		case <-look.C:
			r.look()
			look.Reset(pollEvery)
		case <-locate.C:
			r.locate(func(next time.Duration) { locate.Reset(next) })
		case <-wake.C:
		case <-r.ctx.Done():
		}
		wake.Stop()
		r.tell()
		if err := cmp.Or(r.fatal, r.ctx.Err(), r.stalled()); err != nil {
			return err
		}
	}
	return nil
}

// drain waits for what still runs.
func (r *round) drain() {
	for r.running > 0 {
		(<-r.events)()
	}
}

// run carries out something and has the loop do what it returns.
func (r *round) run(do func() (then func())) {
	r.running++
	go func() {
		then := do()
		r.events <- func() { r.running--; then() }
	}()
}

// start sends a request.
func (r *round) start(a swarm.Ask) {
	request := ask{Index: r.x.Sum.String(), Alone: a.Alone}
	for _, i := range a.Pieces {
		if missing := r.part.missing(i); len(missing) > 0 {
			request.Pieces = append(request.Pieces, askPiece{i, missing})
		}
	}
	asked := -1
	from := Requester(r.Source)
	if a.Peer != swarm.Source {
		from, asked = r.peers[a.Peer], a.Pieces[0]
	}
	if len(request.Pieces) == 0 { // it came by another way
		r.state.Done(a.Peer, asked, swarm.Given, time.Now())
		return
	}
	r.run(func() func() {
		b := fetchPiece(r.ctx, from, r.x, request, r.Rate, func(piece int) {
			if asked < 0 {
				r.events <- func() { r.state.Coming(piece, time.Now()) }
			}
		}, r.put)
		return func() { r.over(a, asked, b) }
	})
}

// localError is of this host's own files: nobody else is to blame.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

func (r *round) put(chunk int, data []byte) error {
	if err := r.part.put(chunk, data); err != nil {
		return localError{err}
	}
	r.came()
	return nil
}

// over enters what came of a request.
func (r *round) over(a swarm.Ask, asked int, b brought) {
	r.mu.Lock()
	r.stats.Received += farm.Bytes(b.received)
	if a.Peer == swarm.Source {
		r.stats.Source += farm.Bytes(b.plain)
	} else {
		r.stats.Peers += farm.Bytes(b.plain)
	}
	r.mu.Unlock()
	if a.Peer == swarm.Source {
		asked = b.piece
	}
	o := outcome(b.err)
	if local := (localError{}); errors.As(b.err, &local) {
		o, r.fatal = swarm.Busy, local.error
	}
	if asked >= 0 && r.part.markPiece(asked) {
		o = swarm.Given
	} else if o == swarm.Given {
		o = swarm.Away // an answer without the piece
	}
	now := time.Now()
	r.state.Done(a.Peer, asked, o, now)
	if a.Peer != swarm.Source && b.held != nil {
		r.state.Peer(a.Peer, b.held)
	}
	r.blame(a.Peer, o, b.err)
}

// blame notes why something did not come.
func (r *round) blame(peer string, o swarm.Outcome, err error) {
	if o < swarm.Lacks || r.ctx.Err() != nil {
		return
	}
	who := "the server"
	if peer != swarm.Source {
		who = "host " + peer
	}
	r.why = fmt.Errorf("%s: %w", who, err)
	if o == swarm.Lied {
		r.Log.Warn("what came is not what it should be", "digest", r.digest, "from", who, "error", err)
	} else if o > swarm.Lacks {
		r.Log.Debug("nothing came", "digest", r.digest, "from", who, "error", err)
	}
}

// look reads what peers hold by now.
func (r *round) look() {
	for _, host := range r.state.Peers(time.Now()) {
		p := r.peers[host]
		if p == nil || p.looking {
			continue
		}
		p.looking = true
		r.run(func() func() {
			held, err := readHeld(r.ctx, p, r.digest)
			return func() {
				p.looking = false
				if o := outcome(err); o != swarm.Given {
					r.state.Failed(host, o, time.Now())
					r.blame(host, o, err)
					return
				}
				r.state.Peer(host, held)
			}
		})
	}
}

// locate asks the server who else has the file, or fetches it.
func (r *round) locate(again func(time.Duration)) {
	r.run(func() func() {
		l, err := r.Locate(r.ctx, r.digest)
		return func() {
			next := locateAgain
			if err == nil {
				next = max(l.Next, time.Second)
				r.located(l)
				for _, p := range l.Peers {
					r.state.Peer(p.Host, nil)
				}
			}
			again(next)
		}
	})
}

// tell reports progress, now and then.
func (r *round) tell() {
	if time.Since(r.noted) < reportEvery {
		return
	}
	r.noted = time.Now()
	p := Progress{Step: StepTransfer, Done: farm.Bytes(r.part.done()), Total: farm.Bytes(r.x.Layout.Bytes)}
	if silent := time.Since(time.Unix(0, r.last.Load())); silent > answerTime && r.why != nil {
		p.Note = fmt.Sprintf("nothing has come for %v: %v", silent.Round(time.Second), r.why)
	}
	r.report(p)
}
