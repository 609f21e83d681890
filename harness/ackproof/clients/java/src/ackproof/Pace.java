package ackproof;

/** The records that are due: at a rate, evenly spaced; on demand, until the harness frees the producer; or any number. */
final class Pace {
    private static final int BLOCK = 512;
    private static final double MOST_BEHIND_S = 0.2, FREE_RATE = 50;
    private final double rate = Double.parseDouble(Client.text("rate")); // per second; 0: full speed
    private final boolean onDemand = Client.text("on_demand").equals("True");
    private volatile long asked;
    private volatile boolean free = !onDemand;
    private double scheduled; // records sent by the schedule
    private long start, sent;

    Pace(int places) {
        asked = onDemand ? places : 0;
    }

    synchronized void obey(int command) {
        if (command == '1') asked++;
        free |= command == 'f';
    }

    /** Return how many records to send now, at most {@code BLOCK}. One that is late catches up 0.2 s worth. */
    synchronized long due(long now) {
        long demanded = asked - sent;
        if (!free || demanded > 0) return Math.max(0, Math.min(BLOCK, demanded));
        if (rate == 0 && !onDemand) return BLOCK;
        double perNano = (rate == 0 ? FREE_RATE : rate) / 1e9;
        if (start == 0) start = now;
        double due = Math.floor((now - start) * perNano) + 1 - scheduled, most = Math.max(1, perNano * 1e9 * MOST_BEHIND_S);
        if (due > most) scheduled += due - most;
        return (long) Math.max(0, Math.min(BLOCK, Math.min(due, most)));
    }

    synchronized void sent() {
        if (sent < asked) sent++;
        else scheduled++;
    }
}
