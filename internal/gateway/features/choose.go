package features

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// CodeLacks is of a bind that needs what no gateway keeps that it may have.
const CodeLacks farm.Code = "gateway-lacks"

// Choose returns the gateway of a bind by what it needs: the one that it names, if that keeps it all; otherwise the
// first that does. Where all that auto chooses from do, it chooses; where nothing is needed, the choice is left as it
// was. Error: CodeLacks.
func Choose(b farm.Bind) (farm.Gateway, error) {
	for _, name := range b.Needs {
		if !known(name) {
			return "", lacks("there is no feature %q that a bind could need", name)
		}
	}
	named := b.Gateway != "" && b.Gateway != farm.AnyGateway
	var keep []farm.Gateway
	for _, name := range farm.Gateways {
		if len(Of(name).missing(b)) == 0 {
			keep = append(keep, name)
		}
	}
	lacking := func(g farm.Gateway) bool { return !slices.Contains(keep, g) }
	switch {
	case len(b.Needs) == 0 || len(keep) == len(farm.Gateways) || named && slices.Contains(keep, b.Gateway):
		return b.Gateway, nil
	case !named && !slices.ContainsFunc(farm.Automatic, lacking):
		return farm.AnyGateway, nil // and no other, should the site allow nothing else
	case named:
		return "", lacks("the bind needs what the gateway %s does not keep: %s; %s", b.Gateway,
			strings.Join(Of(b.Gateway).missing(b), "; "), those(keep))
	case len(keep) == 0:
		var all []string
		for _, name := range farm.Gateways {
			all = append(all, fmt.Sprintf("%s lacks %s", name, strings.Join(Of(name).missing(b), "; ")))
		}
		return "", lacks("no gateway keeps all that the bind needs: %s", strings.Join(all, "; "))
	}
	return keep[0], nil
}

func known(name string) bool {
	return slices.ContainsFunc(All, func(f Feature) bool { return f.Name == name })
}

// those says which gateways would do.
func those(keep []farm.Gateway) string {
	if len(keep) == 0 {
		return "no other does"
	}
	return fmt.Sprintf("these do: %v", keep)
}

// missing are the features that a bind needs and would not have, with the reasons.
func (g Gateway) missing(b farm.Bind) (all []string) {
	if g.Name != farm.FUSE && (b.SetID || b.Devices) {
		return []string{"suid and dev (fuse alone has them)"}
	}
	for _, name := range b.Needs {
		if lack, ok := g.Lacks[name]; ok && !(lack.WithSetID && b.SetID) {
			all = append(all, fmt.Sprintf("%s (%s)", name, lack.Why))
		}
	}
	return all
}

func lacks(format string, args ...any) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeLacks, Message: fmt.Sprintf(format, args...),
		Hint: "`grange gateway list` shows what each gateway keeps"}
}
