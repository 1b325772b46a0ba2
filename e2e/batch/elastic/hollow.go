package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// hollow: a node is made of an image that boots, and whose slurmd never comes. After a few VMs the node is held, with a
// reason that names the image. Somebody mends that; when the back-off is over the node is powered up again, and its job
// runs. It takes more than the minute of a first back-off, so it runs when it is asked for.
func hollow(ctx context.Context, e *elastic, _ *figures) error {
	h := e.hosts[0]
	if err := e.build(ctx, "hollow", "micro", "hollow", "--site"); err != nil {
		return err
	}
	sound, err := os.ReadFile(e.path("worker.toml"))
	if err != nil {
		return err
	}
	broken := append(sound[:len(sound):len(sound)], "[[image]]\nnodes = \"vwn[1-2]\"\nimage = \"hollow\"\n"...)
	if err := os.WriteFile(e.path("worker.toml"), broken, 0o644); err != nil {
		return err
	}
	mend := func() error { return os.WriteFile(e.path("worker.toml"), sound, 0o644) }
	defer mend()
	id, err := e.submit(ctx, "vm", "sleep 1", "--nodelist=vwn1")
	if err != nil {
		return err
	}
	if err := e.await(ctx, "node vwn1 held", func() (bool, error) {
		nodes, err := e.slurm.Nodes(ctx, "vwn1")
		if err != nil {
			return false, nil
		}
		return nodes[0].State == "DOWN" && strings.HasPrefix(nodes[0].Reason, "grange: held: image hollow backs off"),
			nil
	}); err != nil {
		return err
	}
	list, err := h.Grange(ctx, "worker", "list").CombinedOutput()
	if err != nil || !strings.Contains(string(list), "image hollow backs off until") {
		return errors.Join(fmt.Errorf("worker list: %s", list), err)
	}
	if err := mend(); err != nil {
		return err
	}
	if _, err := e.awaitJob(ctx, id, completed); err != nil { // the watch gives the node back
		return err
	}
	return e.settle(ctx)
}
