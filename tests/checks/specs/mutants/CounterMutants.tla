---------------------------- MODULE CounterMutants ----------------------------
EXTENDS Counter

(* for AddError: nobody looks at the limit *)
NoLimit(client, amount) == IF seen[client] # total THEN "STALE" ELSE "NONE"
=============================================================================
