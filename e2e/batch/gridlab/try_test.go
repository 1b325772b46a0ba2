package gridlab

import (
	"context"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	l, err := Start(ctx, Options{Dir: "/tmp/gs/lab", SlurmConf: "/tmp/gs/etc/slurm.conf", User: "nobody", Queues: map[string]string{"main": ""}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := l.Proxy(ctx, "/atlas/Role=production/Capability=NULL", "/atlas/Role=NULL/Capability=NULL")
	if err != nil {
		t.Fatal(err)
	}
	o, err := l.Run(ctx, Credential{Proxy: p}, "main", "#!/bin/sh\necho hello from $(hostname) as $(id -un) $@\necho oops >&2\nexit 3\n", "a 1", "b")
	t.Logf("%+v %v", o, err); if err != nil { t.FailNow() }
	tok, err := l.Token()
	if err != nil {
		t.Fatal(err)
	}
	o, err = l.Run(ctx, Credential{Token: tok}, "main", "#!/bin/sh\necho token job\nexit 4\n")
	t.Logf("%+v %v", o, err); if err != nil { t.FailNow() }
	if err != nil { t.Log(l.Log()) }
}
