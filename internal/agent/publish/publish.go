// Package publish says whom users may let through to ports of their VMs, beside themselves. Names are the site's, and
// so are the accounts and hosts behind them; that a port is published to one of them its owner says.
package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
)

// CodeNoPublish is of a port that is to be published to somebody whom the site does not name.
const CodeNoPublish farm.Code = "no-publish"

// Serve answers who the name in a request's path is.
func Serve(w http.ResponseWriter, r *http.Request, all []config.PublishTo, accounts *names.Service) error {
	to, err := lookUp(r.Context(), all, r.PathValue("name"), accounts)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(to)
}

func lookUp(ctx context.Context, all []config.PublishTo, name string, accounts *names.Service) (api.PublishTo, error) {
	to := api.PublishTo{Name: name}
	i := slices.IndexFunc(all, func(p config.PublishTo) bool { return p.Name == name })
	if i < 0 {
		return to, &farm.Error{Kind: farm.NotFound, Code: CodeNoPublish,
			Message: fmt.Sprintf("ports of VMs are not published to %q on this host", name),
			Hint:    "[publish.NAME] in the agent's configuration says to whom they may be"}
	}
	for _, account := range all[i].Accounts {
		uid, err := uidOf(ctx, accounts, account)
		if err != nil {
			return to, err
		}
		to.UIDs = append(to.UIDs, uid)
	}
	for _, h := range all[i].Hosts {
		to.Hosts = append(to.Hosts, h.String())
	}
	return to, nil
}

// overflow is whom the kernel says of a socket whose user it cannot name: its overflowuid, and nobody's number.
const overflow = 65534

// uidOf looks up an account that may be a number.
func uidOf(ctx context.Context, accounts *names.Service, account string) (uint32, error) {
	uid, err := strconv.ParseUint(account, 10, 32)
	if err != nil {
		u, err := accounts.Named(ctx, account)
		if errors.Is(err, names.ErrUnknown) {
			return 0, &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNoNames,
				Message: fmt.Sprintf("ports of VMs are published to %s, and this host has no such account", account),
				Hint:    fmt.Sprintf("see why `getent passwd %s` finds nothing on this host", account)}
		}
		if err != nil {
			return 0, err
		}
		uid = uint64(u.UID)
	}
	if uid == overflow {
		return 0, &farm.Error{Kind: farm.Denied, Code: CodeNoPublish,
			Message: fmt.Sprintf("ports of VMs are not published to account %s: user %d is whoever has no account",
				account, overflow), Hint: "give the program an account of its own"}
	}
	return uint32(uid), nil
}
