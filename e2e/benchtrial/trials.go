package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// bench is trials on one host.
type bench struct {
	figures
	host shell
}

// workload is a program whose speed depends on vm.swappiness, by a table, and on luck.
const workload = `#!/bin/sh
awk -v s="$(cat /proc/sys/vm/swappiness)" -v seed="$(od -An -N4 -tu4 /dev/urandom)" 'BEGIN {
	srand(seed)
	for (i = 0; i < 12; i++) noise += rand()
	effect[61] = 0.01; effect[63] = 0.03; effect[70] = 0.10; effect[40] = -0.03
	print 1000 * (1 + effect[s]) * (1 + 0.003 * (noise - 6))
}'
`

// planted are the effects in that, by the value of the setting that has them. 59 has none.
var planted = []struct {
	value int
	shown string
}{{61, "gain"}, {63, "gain"}, {70, "gain"}, {40, "loss"}}

const none = 59

const rounds = 12

// snapshot is all that a trial may touch.
const snapshot = `cat /proc/sys/vm/swappiness; find /etc -xdev -type f -print0 | sort -z | xargs -0 sha256sum;
	find /etc -xdev -printf '%M %u %g %p\n' | sort`

func (b *bench) all(ctx context.Context, nothing, kills int) error {
	if _, err := b.host(ctx, "cat >/usr/local/bin/synthetic <<'END'\n"+workload+"END\nchmod 755 /usr/local/bin/synthetic\n"+
		"sysctl -q vm.swappiness=60"); err != nil {
		return err
	}
	before, err := b.host(ctx, snapshot)
	if err != nil {
		return err
	}
	found := 0
	for _, p := range planted {
		v, err := b.try(ctx, swappiness(p.value, rounds))
		if err != nil {
			return err
		}
		if v.Effects[0].Shown == p.shown && v.Accept == (p.shown == "gain") {
			found++
		}
	}
	wrong := 0
	for range nothing {
		v, err := b.try(ctx, swappiness(none, rounds))
		if err != nil {
			return err
		}
		if v.Effects[0].Shown != "no difference shown" || v.Accept {
			wrong++
		}
	}
	b.Planted, b.PlantedFound = len(planted), float64(found)/float64(len(planted))
	b.Nothing, b.FalseFound = nothing, float64(wrong)/float64(max(nothing, 1))
	if err := b.killed(ctx, kills); err != nil {
		return err
	}
	after, err := b.host(ctx, snapshot)
	if b.HostRestored = before == after; !b.HostRestored {
		fmt.Printf("before:\n%s\nafter:\n%s\n", before, after)
	}
	return err
}

// verdict is what the command says.
type verdict struct {
	Rounds  int
	Accept  bool
	Effects []struct {
		Shown string
		Ratio struct{ Median, Low, High float64 }
	}
}

// swappiness is a trial of a value of that.
func swappiness(value, rounds int) string {
	return fmt.Sprintf("grange trial /proc/sys/vm/swappiness=%d --on host --size 1x1 --program synthetic=/usr/local/bin/"+
		"synthetic --rounds %d --json", value, rounds)
}

func (b *bench) try(ctx context.Context, command string) (v verdict, err error) {
	out, err := b.host(ctx, command)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Effects) != 1 {
		return v, fmt.Errorf("%q, %w", out, err)
	}
	e := v.Effects[0]
	_, change, _ := strings.Cut(command, "trial ")
	change, _, _ = strings.Cut(change, " ")
	fmt.Printf("%s: %.4f (%.4f to %.4f), %s\n", change, e.Ratio.Median, e.Ratio.Low, e.Ratio.High, e.Shown)
	return v, nil
}

// killed kills a trial at random points, and lets it come to its end.
func (b *bench) killed(ctx context.Context, kills int) error {
	random := rand.New(rand.NewPCG(1, 1))
	long := swappiness(63, 60)
	for i := range kills {
		after := 0.2 + 3*random.Float64()
		out, err := b.host(ctx, fmt.Sprintf(`setsid %s >/dev/null 2>&1 & pid=$!; sleep %.2f
			kill -KILL $pid 2>/dev/null && echo killed; wait $pid 2>/dev/null || true`, long, after))
		if err != nil {
			return err
		}
		if strings.Contains(out, "killed") {
			b.Kills++
		}
		fmt.Printf("kill %d after %.1f s: %s\n", i+1, after, strings.TrimSpace(out))
	}
	v, err := b.try(ctx, long)
	if err == nil && !v.Accept {
		err = fmt.Errorf("a trial that was killed and gone on with is wrong: %+v", v)
	}
	return err
}
