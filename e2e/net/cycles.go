package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/network"
)

// cycleTests make and end guests, one after the other, and look for what is left.
func cycleTests() []test { return []test{{"cycles", cycles}} }

// cycles takes guests through what the agent does for each. In every second cycle another process does it, and is
// killed somewhere; the next agent's restore and release do the rest.
func cycles(l *lab, f *figures) error {
	for n := range f.Cycles {
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		g, err := l.raw()
		if err != nil {
			return err
		}
		g.vm.Isolated, g.vm.Closed = n%3 == 0, n%5 == 0
		if n%4 < 2 {
			g.vm.Bandwidth = farm.Bandwidth{In: capIn, Out: capOut}
		}
		if n%2 == 0 {
			if err := errors.Join(l.fence(g), l.restore(g), l.end(g)); err != nil {
				return fmt.Errorf("cycle %d: %w", n, err)
			}
			continue
		}
		f.Killed++
		if err := l.killed(g, n); err != nil {
			return fmt.Errorf("cycle %d, whose agent is killed: %w", n, err)
		}
	}
	// An nft that outlived its agent may have the last word, and the restore after it removes what it made.
	var left int
	var err error
	wait(func() bool {
		if err = l.restore(); err == nil {
			left, err = l.left()
		}
		return err != nil || left == 0
	})
	f.Left += left
	return err
}

// killed has another process filter a guest until it is killed.
func (l *lab) killed(g *guest, n int) error {
	text, err := json.Marshal(order{g.vm, l.settings})
	if err != nil {
		return err
	}
	agent := exec.Command("/proc/self/exe")
	agent.Env = append(os.Environ(), asAgent+"="+string(text))
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := agent.Start(); err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	agent.Process.Kill()
	agent.Wait()
	if n%4 == 1 { // the guest runs on: it is filtered again, and sends nothing forged
		if err := errors.Join(l.restore(g), l.honestlyUp(g)); err != nil {
			return err
		}
		frames := [][]byte{eth(nil, g.mac, typeARP, arp(1, g.mac, gateway, nil, gateway))}
		if n, _, err := carried(g, frames, l.uplink); err != nil || n > 0 {
			return fmt.Errorf("a forged frame arrives after the next restore: %w", err)
		}
		return l.end(g)
	}
	g.kill() // and nobody knows its name any more
	return l.restore()
}

// order is what an agent has to do.
type order struct {
	VM       network.VM
	Settings network.Settings
}

// beAgent filters a guest, again and again.
func beAgent(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	l := &lab{ctx: context.Background(), settings: o.Settings}
	g, vm := &guest{vm: o.VM}, o.VM
	for {
		k := network.Of(vm.Network)
		if err := errors.Join(l.fence(g), l.restore(g), k.Release(l.ctx, vm.Name)); err != nil {
			return err
		}
	}
}
