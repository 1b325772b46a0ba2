package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/atomicfile"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/journal"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/procstat"
)

// metalClaim is a claim with what tells, later, whether it is stale. One file holds it, below state_dir.
type metalClaim struct {
	api.Claim
	Plan  farm.Plan
	Boot  string // of the host, when it was made
	Start uint64 // of its process
	Seen  bool   // its control group was there
}

// claimKey is farm.Allotment.Key: jobs of arrays and of several clusters have more than digits.
var claimKey = lazyregexp.New(`^[a-z]+/[A-Za-z0-9][A-Za-z0-9._+@:\[\]-]{0,150}$`)

func (a *claims) claimsDir() string { return filepath.Join(a.config().StateDir, "claims") }

func (a *claims) claimFile(key string) string {
	return filepath.Join(a.claimsDir(), url.PathEscape(key)+".json")
}

// postClaim notes what a batch system has given to a job on the host.
func (a routes) postClaim(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return claimDenied()
	}
	var claim api.Claim
	if err := a.decode(w, r, c, &claim); err != nil {
		return err
	}
	claim.Conflicts = nil
	cpus, err := a.checkClaim(claim)
	if err != nil {
		return err
	}
	k := metalClaim{Claim: claim, Boot: machine.BootID()}
	if claim.Process != 0 {
		if k.Start, err = procstat.Started(claim.Process); err != nil {
			return badRequest("process %d of the claim does not run: %v", claim.Process, err)
		}
	}
	a.claims.claiming.Lock()
	defer a.claims.claiming.Unlock()
	k.Plan, k.Conflicts = a.ledger.ClaimMetal(claim.Key, cpus, claim.Count, farm.Bytes(claim.Memory))
	if err := a.claims.write(&k); err != nil {
		// The file may have its name already: one that was refused must not hold CPUs after the agent's next start.
		return errors.Join(err, a.claims.release(claim.Key))
	}
	k.CPUs = k.Plan.Held().String()
	a.log.With(journal.JobAttrs(claim.Key, "")...).Info("claim on the host", "cpus", k.CPUs, "memory", claim.Memory, "conflicts",
		strings.Join(k.Conflicts, "; "))
	return answer(w, k.Claim)
}

func claimDenied() error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours, Message: "only root may claim a part of the host",
		Hint: "batch systems do so in their prolog and epilog"}
}

// checkClaim refuses what makes no sense. What is merely not free is for the ledger.
func (a routes) checkClaim(c api.Claim) (farm.CPUSet, error) {
	var cpus farm.CPUSet
	switch {
	case !claimKey.MatchString(c.Key):
		return cpus, badRequest("claim %q is not SYSTEM/JOB", c.Key)
	case c.Count < 0 || c.Process < 0 || c.CPUs != "" && c.Count != 0:
		return cpus, badRequest("a claim names its CPUs, or how many")
	case c.CPUs == "" && c.Count == 0 && c.Memory == 0:
		return cpus, badRequest("a claim of nothing")
	case c.Memory > uint64(farm.MaxMemory):
		return cpus, badRequest("a claim of %d bytes of memory", c.Memory)
	case c.Cgroup != "" && (!fs.ValidPath(c.Cgroup) || c.Cgroup == "."):
		return cpus, badRequest("control group %q is not a path below /sys/fs/cgroup", c.Cgroup)
	}
	if c.CPUs == "" {
		return cpus, nil
	}
	cpus, err := farm.ParseCPUSet(c.CPUs)
	if err != nil {
		return cpus, badRequest("CPUs %q: %v", c.CPUs, err)
	}
	a.mu.Lock()
	online := a.topo.Online
	a.mu.Unlock()
	if strange := cpus.Minus(online); !strange.Empty() {
		return cpus, badRequest("this host has no CPUs %v", strange)
	}
	return cpus, nil
}

func (a routes) deleteClaim(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !c.admin() {
		return claimDenied()
	}
	key := r.PathValue("key")
	if !claimKey.MatchString(key) {
		return badRequest("claim %q is not SYSTEM/JOB", key)
	}
	a.claims.claiming.Lock()
	defer a.claims.claiming.Unlock()
	if err := a.claims.release(key); err != nil {
		return err
	}
	return answer(w, api.Claim{Key: key})
}

func (a *claims) release(key string) error {
	if err := os.Remove(a.claimFile(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	a.ledger.ReleaseMetal(key)
	return nil
}

// getClaims lists the claims. Whose job has one the claim does not say: where VMs are private, so are all claims.
func (a routes) getClaims(w http.ResponseWriter, _ *http.Request, c Caller) error {
	out := []api.Claim{}
	if !a.maySee(c, nobody) {
		return answer(w, out)
	}
	a.claims.claiming.Lock()
	defer a.claims.claiming.Unlock()
	all, err := a.claims.read()
	if err != nil {
		return err
	}
	for _, k := range all {
		k.CPUs = k.Plan.Held().String()
		out = append(out, k.Claim)
	}
	return answer(w, out)
}

// write replaces the file whole, and on the disk: a claim must not be lost with the agent.
func (a *claims) write(k *metalClaim) error {
	if err := os.MkdirAll(a.claimsDir(), 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return atomicfile.Write(a.claimFile(k.Key), text, 0o644)
}

// read reads all files. One that cannot be read is no reason to forget the others.
func (a *claims) read() ([]metalClaim, error) {
	paths, err := filepath.Glob(filepath.Join(a.claimsDir(), "*.json"))
	if err != nil {
		return nil, err
	}
	var all []metalClaim
	for _, path := range paths {
		var k metalClaim
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &k)
		}
		if err == nil && a.claimFile(k.Key) != path {
			err = fmt.Errorf("it is of %q", k.Key)
		}
		if err != nil {
			a.log.Error("a claim cannot be read; its job may share CPUs with VMs", "path", path, "error", err)
			continue
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(x, y metalClaim) int { return strings.Compare(x.Key, y.Key) })
	return all, nil
}

// load goes on with the claims that an earlier agent noted.
func (a *claims) load() error {
	all, err := a.read()
	if err != nil {
		return err
	}
	for _, k := range all {
		a.ledger.AdoptMetal(k.Key, k.Plan)
	}
	a.dropStaleClaims()
	return nil
}

// dropStaleClaims releases claims whose job has provably ended. A batch system whose epilog did not run would keep CPUs
// from VMs for ever.
func (a *claims) dropStaleClaims() {
	a.claiming.Lock()
	defer a.claiming.Unlock()
	all, err := a.read()
	if err != nil {
		a.log.Error("claims not read", "error", err)
		return
	}
	for _, k := range all {
		reason, changed := k.stale()
		if changed {
			err = a.write(&k)
		}
		if reason != "" {
			a.log.With(journal.JobAttrs(k.Key, "")...).Warn("claim on the host is stale", "reason", reason)
			err = errors.Join(err, a.release(k.Key))
		}
		if err != nil {
			a.log.With(journal.JobAttrs(k.Key, "")...).Error("claim not released", "error", err)
		}
	}
}

// stale returns why a claim is over; "" while it may not be. changed tells that it has learned something to be kept.
func (k *metalClaim) stale() (reason string, changed bool) {
	if k.Boot != machine.BootID() {
		return "the host has booted since", false
	}
	if k.Process != 0 {
		if start, err := procstat.Started(k.Process); err != nil || start != k.Start {
			return fmt.Sprintf("process %d has ended", k.Process), false
		}
	}
	if k.Cgroup != "" {
		_, err := os.Stat(filepath.Join("/sys/fs/cgroup", k.Cgroup))
		switch {
		case err == nil && !k.Seen:
			k.Seen, changed = true, true
		case errors.Is(err, fs.ErrNotExist) && k.Seen:
			return "control group " + k.Cgroup + " has gone", false
		}
	}
	return "", changed
}
